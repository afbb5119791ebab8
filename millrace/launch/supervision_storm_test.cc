// Whole jobs on a virtual clock: supervision, the rules of keepers, and simulated processes, hosts and connections that
// fail as a seed decides.
#include <signal.h>

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "millrace/cluster/sim/sim_training_testing.h"
#include "millrace/launch/keeper_rules.h"
#include "millrace/launch/supervision.h"
#include "millrace/net/sim/sim_event_loop.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kSshNotices = absl::Seconds(15);  // a connection that is cut (KeeperLink's options of ssh)
constexpr absl::Duration kSshConnects = absl::Seconds(10);
constexpr absl::Duration kSilence = absl::Minutes(2);
constexpr absl::Duration kPings = absl::Seconds(5);
constexpr absl::Duration kStartTimeout = absl::Seconds(30);
constexpr absl::Duration kTakeOver = absl::Seconds(15);  // the keeper's
constexpr char kLauncher[] = "launcher";

struct StormSpec {
  JobSpec job;
  bool remote = false;  // each task on a host of its own, behind ssh
  bool hosts_fail = false;
  bool claims = true;  // keepers claim their task (TaskClaim); without, nothing ends one that was cut off
};

class SupervisionStorm;

// A keeper with the processes of its task.
class SimKeeper : public TaskProcesses {
 public:
  SimKeeper(SupervisionStorm* storm, int task, int number);

  int64_t Start(const StartFrame& start, NumbersAndText* error) override;
  void SignalProgram(int signal) override { Signal(program_, signal); }
  int SignalAll(int signal) override;
  bool AnyLeft() override { return !processes_.empty(); }
  void SendOutput(bool) override {}
  void Release() override {}

  // Signals one process, which ends now or later, or does not care.
  void Signal(int process, int signal);
  void End(int process, ExitStatus exit);
  // The keeper and its guard's work are over at once: its host lost power, or the guard has killed what was left.
  void Vanish();
  void AfterEvent();

  SupervisionStorm* const storm;
  const int task;
  const std::string name;  // its host in the event loop
  bool alive = true;
  bool linked = true;      // the launcher still listens to it
  bool forgotten = false;  // its connection carries nothing any more, and only the launcher's end notices that
  // What is on its way in a direction. Each arrival delivers the first of it, whatever the order of the arrivals.
  struct Direction {
    absl::Time last = absl::InfinitePast();
    std::deque<std::function<void()>> on_the_way;
    std::function<void()> Take() {
      std::function<void()> first = std::move(on_the_way.front());
      on_the_way.pop_front();
      return first;
    }
  };
  Direction to_keeper, to_launcher;
  int program() const { return program_; }
  bool runs_program() const { return program_ != 0; }
  size_t processes() const { return processes_.size(); }
  KeeperRules& rules() { return *rules_; }

 private:
  // What a program that knows of notices does when it gets one.
  void ReactToNotice(int program);
  struct Process {
    bool knows_notices = false, noticed = false;
    bool ignores_term = false;
    bool suspended = false;
    bool ending = false;
  };

  std::map<int, Process> processes_;
  int program_ = 0;
  std::unique_ptr<KeeperRules> rules_;
  net::SimEventLoop::EventId timer_ = 0;
};

class SupervisionStorm {
 public:
  SupervisionStorm(uint64_t seed, StormSpec spec)
      : spec_(std::move(spec)), random_(seed), loop_(seed), supervision_(spec_.job, loop_.clock(kLauncher)) {
    const int tasks = spec_.job.task_count();
    current_.resize(tasks);
    hosts_.resize(tasks);
    supervision_.Begin();
    AtLauncher(absl::ZeroDuration(), [] {});
    if (spec_.remote) Ping();
    for (int i = Random(5); i > 0; --i) {
      loop_.After(absl::Milliseconds(Random(60000)), "", [this] { Fault(); });
    }
  }

  void Run() {
    ASSERT_TRUE(loop_.RunUntil([this] { return finished_; }, absl::Hours(2))) << "the job does not end\n" << log();
    // The launcher ends; whatever is left notices that.
    for (const auto& keeper : keepers_) CloseLink(keeper.get());
    bool later = false;
    loop_.After(kSilence + absl::Minutes(2), "", [&] { later = true; });
    loop_.RunUntil([&] { return later; }, absl::Hours(1));
    for (const auto& keeper : keepers_) {
      EXPECT_EQ(keeper->processes(), 0) << keeper->name << " left processes\n" << log();
      EXPECT_FALSE(keeper->alive) << keeper->name << " is left\n" << log();
    }
    CheckVerdict();
  }
  std::string log() const { return absl::StrJoin(log_, "\n"); }

  // For the keepers.

  net::SimEventLoop& loop() { return loop_; }
  int Random(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }
  int NextPid() { return ++last_pid_; }
  bool Chance(int percent) { return Random(100) < percent; }
  bool remote() const { return spec_.remote; }
  bool serves(int task) const { return supervision_.tasks()[task].serves; }
  void Log(const std::string& what) {
    log_.push_back(absl::StrCat(absl::ToDoubleSeconds(loop_.now() - absl::UnixEpoch()), " ", what));
  }
  void FromKeeper(SimKeeper* keeper, KeeperFrameKind kind, absl::string_view body) {
    Deliver(keeper, /*to_launcher=*/true, [this, keeper, frame = KeeperFrame{kind, std::string(body)}] {
      if (keeper->linked) OnFrame(keeper->task, frame);
    });
  }
  void OnKeeperEnd(SimKeeper* keeper, absl::string_view why) {
    Log(absl::StrCat(keeper->name, " ends: ", why));
    Deliver(keeper, /*to_launcher=*/true, [this, keeper] {
      if (keeper->linked) Lose(keeper, "its keeper was killed");
    });
  }
  void OnProgramStarts(SimKeeper* starting) {
    Log(absl::StrCat(starting->name, " starts its program"));
    for (const auto& keeper : keepers_) {
      if (keeper.get() == starting || keeper->task != starting->task || !keeper->runs_program()) continue;
      ++doubled_;
      if (spec_.claims)
        ADD_FAILURE() << "two programs of one task: " << keeper->name << " and " << starting->name << "\n" << log();
    }
  }
  // How often a program started while another one of its task ran.
  int doubled() const { return doubled_; }

 private:
  struct Host {
    bool off = false;
    absl::Time cut_since = absl::InfiniteFuture();
    std::deque<std::function<void()>> held;
    bool unreachable() const { return off || cut_since != absl::InfiniteFuture(); }
  };

  // Runs `what` at the launcher, as one turn of its loop.
  void AtLauncher(absl::Duration delay, std::function<void()> what) {
    loop_.After(delay, kLauncher, [this, what = std::move(what)] {
      if (finished_) return;
      what();
      supervision_.OnTimer();
      Perform();
    });
  }
  void Perform() {
    if (supervision_.noticed() && noticed_at_ == absl::InfinitePast()) noticed_at_ = loop_.now();
    for (std::vector<Action> actions; !(actions = supervision_.Take()).empty();) {
      for (const Action& action : actions) Perform(action);
    }
    if (timer_ != 0) loop_.Remove(std::exchange(timer_, 0));
    const absl::Time next = supervision_.next_timer();
    if (next == absl::InfiniteFuture() || finished_) return;
    timer_ = loop_.At(std::max(next, loop_.now()), kLauncher, [this] {
      timer_ = 0;
      supervision_.OnTimer();
      Perform();
    });
  }
  void Perform(const Action& action) {
    SimKeeper* const keeper = action.task < 0 ? nullptr : current_[action.task];
    switch (action.kind) {
      case Action::Kind::kStartKeeper:
        return StartKeeper(action.task);
      case Action::Kind::kStartProgram:
        return ToKeeper(keeper, KeeperFrameKind::kStart,
                        StartFrame{.arguments = {"program"}, .environment = {}}.Encode());
      case Action::Kind::kSignal:
        CheckTurn(action.task);
        return ToKeeper(keeper, KeeperFrameKind::kSignal, EncodeNumbers({action.number}));
      case Action::Kind::kKill:
        return ToKeeper(keeper, KeeperFrameKind::kKill, "");
      case Action::Kind::kTell:
        return Log(absl::StrCat("launcher: ", action.text));
      case Action::Kind::kFinish:
        finished_ = true;
        code_ = action.number;
        verdict_ = action.text;
        Log(absl::StrCat("the job ends with ", code_, ": ", verdict_));
    }
  }
  // After a notice the chief is not asked to end before the others have stopped, nor a ps before they have ended;
  // unless the grace runs out.
  void CheckTurn(int task) {
    if (!supervision_.noticed()) return;
    const absl::Duration since = loop_.now() - noticed_at_;
    for (const TaskRecord& other : supervision_.tasks()) {
      if (other.serves || IsTerminal(other.state)) continue;
      const bool stopped = !other.makes_steps || other.name.ToString() == "worker/0";
      if (is_chief(task)) {
        EXPECT_TRUE(stopped || since >= 0.4 * spec_.job.grace) << other.name.ToString() << " makes steps\n" << log();
      }
      if (serves(task)) {
        EXPECT_GE(since, 0.8 * spec_.job.grace) << other.name.ToString() << " needs the ps\n" << log();
      }
    }
  }
  void StartKeeper(int task) {
    Log(absl::StrCat("a keeper for task ", task));
    const int number = static_cast<int>(keepers_.size());
    if (hosts_[task].unreachable()) {
      AtLauncher(kSshConnects, [this, task] { supervision_.OnKeeperLost(task, "connection timed out"); });
      return;
    }
    keepers_.push_back(std::make_unique<SimKeeper>(this, task, number));
    SimKeeper* const keeper = keepers_.back().get();
    current_[task] = keeper;
    if (has_claims()) TakeOver(keeper);
    AtLauncher(kStartTimeout, [this, keeper] {
      if (keeper->linked && current_[keeper->task] == keeper && !supervision_.tasks()[keeper->task].keeper_ready)
        Lose(keeper, "no keeper came up");
    });
    SayHello(keeper);
  }
  bool has_claims() const { return spec_.remote && spec_.claims; }
  // As TaskClaim: an earlier keeper of the task on the same machine ends before this one says anything.
  void TakeOver(SimKeeper* keeper) {
    for (const auto& earlier : keepers_) {
      if (earlier.get() == keeper || earlier->task != keeper->task || !earlier->alive) continue;
      Touch(earlier.get(), [earlier = earlier.get()] { earlier->rules().OnLauncherGone(); });
    }
    loop_.After(kTakeOver, "", [this, keeper] {
      if (!keeper->alive) return;
      for (const auto& earlier : keepers_) {
        if (earlier.get() == keeper) break;
        if (earlier->task == keeper->task && earlier->alive) earlier->Vanish();
      }
    });
  }
  void SayHello(SimKeeper* keeper) {
    if (!keeper->alive) return;
    const bool waits = has_claims() && std::any_of(keepers_.begin(), keepers_.end(), [&](const auto& earlier) {
                         return earlier.get() != keeper && earlier->task == keeper->task && earlier->alive;
                       });
    if (waits) {
      loop_.After(absl::Milliseconds(50), keeper->name, [this, keeper] { SayHello(keeper); });
      return;
    }
    FromKeeper(keeper, KeeperFrameKind::kHello, HelloFrame{.pid = 1, .port = 1000}.Encode());
    keeper->AfterEvent();
  }
  void OnFrame(int task, const KeeperFrame& frame) {
    const auto number = [&](int count, int i) {
      return static_cast<int>(DecodeNumbers(frame.body, count)->numbers[i]);
    };
    Log(absl::StrCat("launcher hears ", static_cast<int>(frame.kind), " of task ", task));
    switch (frame.kind) {
      case KeeperFrameKind::kHello:
        return supervision_.OnKeeperReady(task);
      case KeeperFrameKind::kStarted:
        return supervision_.OnStarted(task, number(1, 0));
      case KeeperFrameKind::kNotStarted:
        return supervision_.OnNotStarted(task, DecodeNumbers(frame.body, 1)->text, 127);
      case KeeperFrameKind::kSuspended:
        return supervision_.OnSuspended(task, number(1, 0));
      case KeeperFrameKind::kExited:
        return supervision_.OnExited(task, {.code = number(2, 0), .signal = number(2, 1)}, "");
      case KeeperFrameKind::kGone:
        return supervision_.OnGone(task);
      case KeeperFrameKind::kProgress:
        return supervision_.OnNoticeWord(task, *ParseProgress(frame.body));
      default:
        return;
    }
  }
  // The launcher's end of a connection is closed; the keeper's notices as soon as it can be reached.
  void Lose(SimKeeper* keeper, absl::string_view why) {
    CloseLink(keeper);
    if (current_[keeper->task] == keeper) current_[keeper->task] = nullptr;
    supervision_.OnKeeperLost(keeper->task, why);
  }
  void CloseLink(SimKeeper* keeper) {
    if (!std::exchange(keeper->linked, false)) return;
    // The end of a connection that is cut may be lost with it: then the keeper counts on its silence.
    if (hosts_[keeper->task].unreachable() && Chance(50)) return;
    Deliver(keeper, /*to_launcher=*/false, [keeper] {
      if (keeper->alive) keeper->rules().OnLauncherGone();
    });
  }
  void ToKeeper(SimKeeper* keeper, KeeperFrameKind kind, const std::string& body) {
    if (keeper == nullptr || !keeper->linked) return;
    Deliver(keeper, /*to_launcher=*/false, [keeper, frame = KeeperFrame{kind, body}] {
      if (!keeper->alive || keeper->rules().launcher_gone()) return;
      keeper->rules().OnHeard();
      keeper->rules().OnFrame(frame);
    });
  }
  // In order in each direction; held back while the host cannot be reached.
  void Deliver(SimKeeper* keeper, bool to_launcher, std::function<void()> arrive) {
    Host& host = hosts_[keeper->task];
    if (host.off || keeper->forgotten) return;
    if (host.unreachable()) {
      host.held.push_back(
          [this, keeper, to_launcher, arrive = std::move(arrive)] { Deliver(keeper, to_launcher, arrive); });
      return;
    }
    SimKeeper::Direction& direction = to_launcher ? keeper->to_launcher : keeper->to_keeper;
    direction.last = std::max(direction.last, loop_.now() + absl::Microseconds(100 + Random(20000)));
    direction.on_the_way.push_back(std::move(arrive));
    if (to_launcher) return AtLauncher(direction.last - loop_.now(), [keeper] { keeper->to_launcher.Take()(); });
    loop_.At(direction.last, keeper->name, [keeper] {
      keeper->to_keeper.Take()();
      keeper->AfterEvent();
    });
  }
  void Ping() {
    AtLauncher(kPings, [this] {
      for (SimKeeper* const keeper : current_) ToKeeper(keeper, KeeperFrameKind::kPing, "");
      Ping();
    });
  }

  void Fault() {
    const int task = Random(static_cast<int>(current_.size()));
    SimKeeper* const keeper = current_[task];
    const absl::Duration time = absl::Milliseconds(Random(40000));
    const int kind = Random(spec_.hosts_fail ? 10 : 6);
    Log(absl::StrCat("fault ", kind, " at task ", task));
    switch (kind) {
      case 0:
      case 1: {
        if (keeper == nullptr || !keeper->runs_program()) return;
        Touch(keeper, [this, keeper] {
          const int signals[] = {SIGKILL, SIGSEGV, SIGABRT};
          keeper->End(keeper->program(), {.signal = signals[Random(3)]});
        });
        failed_.insert(task);
        return;
      }
      case 2:
        if (keeper == nullptr || !keeper->runs_program()) return;
        Touch(keeper, [keeper] { keeper->SignalProgram(SIGSTOP); });
        if (Chance(50)) {
          loop_.After(time / 4, "", [this, keeper] {
            Touch(keeper, [keeper] {
              if (keeper->runs_program()) keeper->SignalProgram(SIGCONT);
            });
          });
        }
        failed_.insert(task);
        return;
      case 3:
        if (keeper == nullptr || !keeper->alive) return;
        failed_.insert(task);
        return Touch(keeper, [keeper] { keeper->Vanish(); });
      case 4:
        loop_.Hang(kLauncher);
        loop_.After(time, "", [this] { loop_.Resume(kLauncher); });
        return;
      case 5:
        if (Chance(30)) {
          interrupted_ = true;
          AtLauncher(absl::ZeroDuration(), [this] { supervision_.OnInterrupt(Chance(50) ? SIGINT : SIGHUP); });
        } else if (Chance(60)) {
          Notify(keeper);
        }
        return;
      case 6:
      case 7:
        return Cut(task, time);
      case 8:
        // Something in between has forgotten the connection, and new ones work.
        if (keeper == nullptr || !keeper->linked) return;
        failed_.insert(task);
        keeper->forgotten = true;
        if (Chance(30)) Suspend(keeper, 2 * time);
        return LoseAfter(kSshNotices, keeper);
      default:
        failed_.insert(task);
        hosts_[task].off = true;
        for (const auto& each : keepers_) {
          if (each->task == task && each->alive) each->Vanish();
        }
        LoseAfter(kSshNotices, keeper);
        loop_.After(time, "", [this, task] { hosts_[task].off = false; });
    }
  }
  // A notice to the launcher, to a keeper, or to all of them at once, as a scheduler does it.
  void Notify(SimKeeper* keeper) {
    interrupted_ = true;
    const bool all = Chance(30);
    for (const auto& each : keepers_) failed_.insert(each->task);
    if (all || keeper == nullptr || Chance(50)) {
      AtLauncher(absl::ZeroDuration(), [this] { supervision_.OnNotice(SIGTERM); });
      if (!all) return;
    }
    for (const auto& each : keepers_) {
      if (all || each.get() == keeper) Touch(each.get(), [each = each.get()] { each->rules().OnNotice(SIGTERM); });
    }
  }
  void Suspend(SimKeeper* keeper, absl::Duration time) {
    Log(absl::StrCat(keeper->name, " is suspended"));
    loop_.Hang(keeper->name);
    loop_.After(time, "", [this, keeper] { loop_.Resume(keeper->name); });
  }
  void Touch(SimKeeper* keeper, std::function<void()> what) {
    loop_.After(absl::ZeroDuration(), keeper->name, [keeper, what = std::move(what)] {
      if (!keeper->alive) return;
      what();
      keeper->AfterEvent();
    });
  }
  void Cut(int task, absl::Duration time) {
    Host& host = hosts_[task];
    if (host.unreachable()) return;
    host.cut_since = loop_.now();
    if (time >= kSshNotices) {
      failed_.insert(task);
      LoseAfter(kSshNotices, current_[task]);
    }
    loop_.After(time, "", [this, task] {
      Host& host = hosts_[task];
      host.cut_since = absl::InfiniteFuture();
      for (auto& message : std::exchange(host.held, {})) message();
    });
  }
  void LoseAfter(absl::Duration time, SimKeeper* keeper) {
    if (keeper == nullptr) return;
    AtLauncher(time, [this, keeper] {
      if (keeper->linked) Lose(keeper, "the connection ended");
    });
  }

  void CheckVerdict() {
    const std::vector<TaskRecord>& tasks = supervision_.tasks();
    bool all = true;
    for (const TaskRecord& task : tasks) {
      EXPECT_TRUE(IsTerminal(task.state)) << task.name.ToString() << "\n" << log();
      EXPECT_LE(task.restarts, task.restart.limit);
      all &= task.serves || task.state == RunState::kSucceeded;
    }
    EXPECT_EQ(code_ == 0, all && !(interrupted_ && !verdict_.empty())) << verdict_ << "\n" << log();
    EXPECT_EQ(verdict_.empty(), code_ == 0) << log();
    if (supervision_.noticed()) CheckNotice();
    if (code_ == 0 || absl::StartsWith(verdict_, "interrupted") || absl::StartsWith(verdict_, "stopped by")) return;
    // Whoever is named did something.
    bool named = false;
    for (const int task : failed_) named |= absl::StrContains(verdict_, tasks[task].name.ToString());
    EXPECT_TRUE(named) << verdict_ << "\n" << log();
  }

  // What the last line says of the checkpoint is true.
  void CheckNotice() {
    const bool whole = absl::StrContains(verdict_, "is whole");
    EXPECT_EQ(code_, absl::StrContains(verdict_, "not whole") ? 1 : 143) << verdict_ << "\n" << log();
    if (whole) {
      EXPECT_TRUE(saved_) << verdict_ << "\n" << log();
    }
  }

 public:
  void NoteFailed(int task) { failed_.insert(task); }
  void NoteSaved() { saved_ = true; }
  bool is_chief(int task) const { return supervision_.tasks()[task].name.ToString() == "worker/0"; }

 private:
  const StormSpec spec_;
  std::mt19937_64 random_;
  net::SimEventLoop loop_;
  Supervision supervision_;
  std::vector<std::unique_ptr<SimKeeper>> keepers_;
  std::vector<SimKeeper*> current_;  // by task; null: none
  std::vector<Host> hosts_;          // by task
  std::set<int> failed_;             // tasks that had a fault or failed by themselves
  net::SimEventLoop::EventId timer_ = 0;
  bool finished_ = false, interrupted_ = false;
  bool saved_ = false;
  absl::Time noticed_at_ = absl::InfinitePast();
  int code_ = -1;
  int last_pid_ = 100;
  int doubled_ = 0;
  std::string verdict_;
  std::vector<std::string> log_;
};

SimKeeper::SimKeeper(SupervisionStorm* storm, int task, int number)
    : storm(storm),
      task(task),
      name(absl::StrCat("keeper", number, ".of", task)),
      rules_(std::make_unique<KeeperRules>(
          KeeperRulesOptions{.silence = storm->remote() ? kSilence : absl::InfiniteDuration()},
          storm->loop().clock(name), this, [this](KeeperFrameKind kind, absl::string_view body) {
            if (alive && !rules_->launcher_gone()) this->storm->FromKeeper(this, kind, body);
          })) {}

int64_t SimKeeper::Start(const StartFrame&, NumbersAndText* error) {
  if (storm->Chance(2)) {
    storm->NoteFailed(task);
    *error = {{ENOENT}, "./program: No such file or directory"};
    return 0;
  }
  storm->OnProgramStarts(this);
  program_ = storm->NextPid();
  processes_[program_] = {.knows_notices = storm->Chance(60), .ignores_term = storm->Chance(10)};
  for (int i = storm->Random(3); i > 0; --i) processes_[storm->NextPid()] = {.ignores_term = storm->Chance(30)};
  if (storm->serves(task)) return program_;
  const bool fails = storm->Chance(15);
  if (fails) storm->NoteFailed(task);
  storm->loop().After(absl::Milliseconds(500 + storm->Random(50000)), name, [this, program = program_, fails] {
    // A program that is suspended makes no progress.
    const auto it = processes_.find(program);
    if (!alive || it == processes_.end()) return;
    if (it->second.suspended) {
      it->second.ending = true;
      return;
    }
    End(program, {.code = fails ? 3 : 0});
    AfterEvent();
  });
  return program_;
}

int SimKeeper::SignalAll(int signal) {
  std::vector<int> all;
  for (const auto& [pid, process] : processes_) all.push_back(pid);
  for (const int pid : all) Signal(pid, signal);
  return static_cast<int>(all.size());
}

void SimKeeper::Signal(int pid, int signal) {
  const auto it = processes_.find(pid);
  if (it == processes_.end()) return;
  Process& process = it->second;
  if (signal == SIGSTOP || signal == SIGCONT) {
    const bool was = std::exchange(process.suspended, signal == SIGSTOP);
    if (was != process.suspended && pid == program_) {
      storm->loop().After(absl::Milliseconds(1), name, [this, signal] {
        if (alive) rules_->OnSuspended(signal == SIGSTOP ? SIGSTOP : 0);
      });
    }
    if (!process.suspended && process.ending) {
      storm->loop().After(absl::Milliseconds(1), name, [this, pid] {
        End(pid, {.signal = SIGTERM});
        AfterEvent();
      });
    }
    return;
  }
  if (signal != SIGKILL && process.suspended) {
    process.ending |= !process.ignores_term;
    return;
  }
  if (signal != SIGKILL && process.ignores_term) return;
  if (signal == SIGTERM && process.knows_notices && !std::exchange(process.noticed, true) && !storm->serves(task))
    return ReactToNotice(pid);
  const absl::Duration time =
      signal == SIGKILL ? absl::Milliseconds(storm->Random(5)) : absl::Milliseconds(storm->Random(3000));
  storm->loop().After(time, name, [this, pid, signal] {
    End(pid, {.signal = signal});
    AfterEvent();
  });
}

void SimKeeper::ReactToNotice(int program) {
  const auto say = [this](const TrainingProgress& word) {
    if (!rules_->launcher_gone()) storm->FromKeeper(this, KeeperFrameKind::kProgress, FormatProgress(word));
  };
  say({.notice = "stopping"});
  storm->loop().After(absl::Milliseconds(storm->Random(2500)), name, [this, program, say] {
    if (!alive || processes_.count(program) == 0) return;
    const bool chief = storm->is_chief(task), saves = storm->Chance(80);
    if (chief && saves) storm->NoteSaved();
    say({.step = 5, .notice = !chief ? "ready" : saves ? "saved" : "failed", .checkpoint = "model.ckpt-5"});
    storm->loop().After(absl::Milliseconds(storm->Random(1500)), name, [this, program] {
      if (!alive) return;
      End(program, {.code = 143});
      AfterEvent();
    });
  });
}

void SimKeeper::End(int pid, ExitStatus exit) {
  if (processes_.erase(pid) == 0) return;
  storm->Log(absl::StrCat(name, ": process ", pid, pid == program_ ? " (the program) " : " ", exit.ToString()));
  const bool program = pid == program_;
  if (program) program_ = 0;
  if (!alive) return;
  if (program) rules_->OnExited(exit);
  rules_->LookWhetherGone();
}

void SimKeeper::Vanish() {
  alive = false;
  processes_.clear();
  program_ = 0;
  storm->OnKeeperEnd(this, "killed");
}

void SimKeeper::AfterEvent() {
  if (!alive) return;
  rules_->OnTimer();
  if (rules_->over()) {
    alive = false;
    storm->OnKeeperEnd(this, "its work is done");
    return;
  }
  if (timer_ != 0) storm->loop().Remove(std::exchange(timer_, 0));
  const absl::Time next = rules_->next_timer();
  if (next == absl::InfiniteFuture()) return;
  timer_ = storm->loop().At(std::max(next, storm->loop().now() + absl::Milliseconds(1)), name, [this] {
    timer_ = 0;
    AfterEvent();
  });
}

StormSpec SpecOfSeed(uint64_t seed, bool remote) {
  JobSpec job;
  const int limit = static_cast<int>(seed % 4);
  job.groups.push_back(
      {.name = "ps", .count = static_cast<int>(seed % 2), .restart = {.limit = limit}, .serves = true});
  job.groups.push_back({.name = "worker", .count = static_cast<int>(1 + seed / 2 % 4), .restart = {.limit = limit}});
  return {.job = std::move(job), .remote = remote, .hosts_fail = remote};
}

TEST(SupervisionStormTest, AJobOnOneMachineEndsWithItsCauseAndLeavesNothing) {
  ForSeeds(500, [](uint64_t seed) { SupervisionStorm(seed, SpecOfSeed(seed, /*remote=*/false)).Run(); });
}

TEST(SupervisionStormTest, AJobOnSeveralMachinesEndsWithItsCauseAndLeavesNothing) {
  ForSeeds(500, [](uint64_t seed) { SupervisionStorm(seed, SpecOfSeed(seed, /*remote=*/true)).Run(); });
}

TEST(SupervisionStormTest, WithoutClaimsAKeeperThatWasCutOffHasASecondProgramOfItsTaskBesideIt) {
  int doubled = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    StormSpec spec = SpecOfSeed(seed, /*remote=*/true);
    spec.claims = false;
    SupervisionStorm storm(seed, std::move(spec));
    storm.Run();
    doubled += storm.doubled();
  }
  EXPECT_GT(doubled, 0) << "the storm does not find what claims are there for";
}

}  // namespace
}  // namespace millrace::launch
