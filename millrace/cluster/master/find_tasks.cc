#include "millrace/cluster/master/find_tasks.h"

#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "millrace/base/fan_in.h"
#include "millrace/base/log.h"
#include "millrace/cluster/blamed_task.h"
#include "millrace/cluster/step/let_go.h"
#include "millrace/graph/device_name.h"

namespace millrace {
namespace {

constexpr absl::Duration kFirstReport = absl::Seconds(1);
constexpr absl::Duration kMostBetweenReports = absl::Seconds(30);
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kMostPause = absl::Milliseconds(500);

class Search : public std::enable_shared_from_this<Search> {
 public:
  using Done = absl::AnyInvocable<void(StatusOr<std::vector<SessionTask>>)>;

  Search(FindTasksOptions options, Done done)
      : options_(std::move(options)), begun_(options_.clock->Now()), done_(std::move(done)) {}

  void Start(const CallControl& control) {
    {
      // Between two rounds of requests only timers refer to the search, and they do not keep it alive.
      MutexLock lock(&mu_);
      alive_ = shared_from_this();
    }
    if (Status status = SelectTasks(); !status.ok()) return Finish(status);
    if (control.cancellation != nullptr) {
      cancellation_ = control.cancellation;
      owner_ = control.owner;
      token_ = cancellation_->NewToken();
      if (!cancellation_->Register(token_, [weak = weak_from_this()] {
            if (auto self = weak.lock()) self->Finish(Cancelled("the client gave up on the session"));
          })) {
        return Finish(Cancelled("the client gave up on the session"));
      }
    }
    if (peers_.empty()) return Succeed();
    for (size_t i = 0; i < peers_.size(); ++i) Ask(i, kFirstPause);
    After(kFirstReport, [this] { Report(kFirstReport); });
    if (options_.timeout != absl::InfiniteDuration()) After(options_.timeout, [this] { Expire(); });
  }

 private:
  Status SelectTasks() {
    std::vector<DeviceName> filters;
    for (const std::string& text : options_.device_filters) {
      StatusOr<DeviceName> filter = DeviceName::Parse(text);
      if (!filter.ok()) return WithPrefix(absl::StrCat("device filter '", text, "': "), filter.status());
      // A filter may name a device; only its task matters here.
      filter->type.reset();
      filter->index.reset();
      filters.push_back(*std::move(filter));
    }
    for (const Peer& peer : options_.peers->all()) {
      const DeviceName name{.job = peer.id.job, .replica = 0, .task = peer.id.index, .type = {}, .index = {}};
      bool wanted = filters.empty();
      for (const DeviceName& filter : filters) wanted |= filter.Matches(name);
      if (wanted) peers_.push_back(&peer);
    }
    MutexLock lock(&mu_);
    found_.resize(peers_.size());
    why_.resize(peers_.size());
    if (!peers_.empty()) all_.emplace(peers_.size(), [this](Status) { Succeed(); });
    return absl::OkStatus();
  }

  void After(absl::Duration delay, absl::AnyInvocable<void()> what) {
    options_.timers->Schedule(delay, [weak = weak_from_this(), what = std::move(what)]() mutable {
      if (auto self = weak.lock(); self != nullptr && !self->finished_.load()) what();
    });
  }

  void Ask(size_t i, absl::Duration pause) {
    peers_[i]->worker->GetStatus({.timeout = options_.peer_timeout}, [self = shared_from_this(), i,
                                                                      pause](StatusOr<pb::GetStatusResponse> answer) {
      if (answer.ok()) return self->OnFound(i, *answer);
      if (!absl::IsUnavailable(answer.status()) && !absl::IsDeadlineExceeded(answer.status())) {
        return self->Finish(answer.status());
      }
      {
        MutexLock lock(&self->mu_);
        self->why_[i] = answer.status();
      }
      self->After(pause, [s = self.get(), i, pause] { s->Ask(i, std::min(pause * 2, kMostPause)); });
    });
  }

  void OnFound(size_t i, const pb::GetStatusResponse& answer) {
    if (answer.device_attributes_size() == 0) {
      return Finish(Internal("task ", peers_[i]->name, " at ", peers_[i]->address, " has no devices"));
    }
    {
      MutexLock lock(&mu_);
      SessionTask& task = found_[i];
      if (task.peer != nullptr) return;
      task.peer = peers_[i];
      task.name = peers_[i]->name;
      for (pb::DeviceAttributes device : answer.device_attributes()) {
        task.speaks_millrace |= device.physical_device_desc() == "Millrace";
        // If the session brings its own cluster spec, the task may have another name there.
        const size_t at = device.name().find("/device:");
        if (at != std::string::npos) device.set_name(absl::StrCat(task.name, device.name().substr(at)));
        task.devices.push_back(std::move(device));
      }
    }
    all_->Arrive();
  }

  // With the reasons for messages; without them as the name of a wait.
  std::string Missing(bool why = true) {
    std::vector<std::string> names;
    MutexLock lock(&mu_);
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (found_[i].peer != nullptr) continue;
      const std::string name = absl::StrCat(peers_[i]->name, " at ", peers_[i]->address);
      // The reason distinguishes a wrong port from a missing certificate.
      const absl::string_view reason = absl::StripPrefix(why_[i].message(), absl::StrCat("task ", name, " "));
      names.push_back(reason.empty() || !why ? name : absl::StrCat(name, " (", reason, ")"));
    }
    return absl::StrJoin(names, ", ");
  }

  // The first of them; empty if none is missing.
  std::string FirstMissing() {
    MutexLock lock(&mu_);
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (found_[i].peer == nullptr) return peers_[i]->name;
    }
    return "";
  }

  // Registers the wait, so that status and hang reports list it. An empty `what` ends it.
  void NoteWait(std::string what, std::string peer = "") {
    WaitRegistry* const waits = options_.worker->task().waits().get();
    if (waits == nullptr) return;
    MutexLock lock(&mu_);
    if (what == noted_ || (!what.empty() && finished_.load())) return;
    noted_ = what;
    if (wait_ != 0) waits->End(wait_);
    wait_ = what.empty()
                ? 0
                : waits->Begin(
                      {.node = "session", .what = std::move(what), .kind = Wait::Kind::kPeer, .peer = std::move(peer)});
  }

  void Report(absl::Duration pause) {
    NoteWait(absl::StrCat("tasks that do not answer: ", Missing(/*why=*/false)), FirstMissing());
    MR_LOG(Warning, "a session has waited ",
           absl::FormatDuration(absl::Trunc(options_.clock->Now() - begun_, absl::Seconds(1))),
           " for tasks that do not answer: ", Missing());
    const absl::Duration next = std::min(pause * 2, kMostBetweenReports);
    After(next, [this, next] { Report(next); });
  }

  void Expire() {
    Finish(BlameTask(DeadlineExceeded("the session could not be made within ", absl::FormatDuration(options_.timeout),
                                      ": no answer from ", Missing()),
                     FirstMissing()));
  }

  void Succeed() {
    std::vector<SessionTask> tasks;
    SessionTask self{.peer = nullptr, .name = options_.peers->self(), .devices = {}, .speaks_millrace = true};
    options_.worker->GetStatus({}, [&](StatusOr<pb::GetStatusResponse> answer) {
      for (pb::DeviceAttributes device : answer->device_attributes()) {
        device.set_name(absl::StrCat(self.name, device.name().substr(device.name().find("/device:"))));
        self.devices.push_back(std::move(device));
      }
    });
    tasks.push_back(std::move(self));
    {
      MutexLock lock(&mu_);
      for (SessionTask& task : found_) tasks.push_back(task);
    }
    Finish(std::move(tasks));
  }

  void Finish(StatusOr<std::vector<SessionTask>> result) {
    if (finished_.exchange(true)) return;
    NoteWait("");
    std::shared_ptr<Search> last;
    {
      MutexLock lock(&mu_);
      last.swap(alive_);
    }
    if (cancellation_ != nullptr) LetGo(cancellation_, token_);
    Done done = std::move(done_);
    done(std::move(result));
  }

  const FindTasksOptions options_;
  const absl::Time begun_;
  Done done_;
  std::atomic<bool> finished_{false};
  CancellationManager* cancellation_ = nullptr;
  std::shared_ptr<void> owner_;
  CancellationManager::Token token_ = 0;
  std::vector<const Peer*> peers_;  // the peers that are asked
  Mutex mu_;
  std::shared_ptr<Search> alive_ ABSL_GUARDED_BY(mu_);
  std::vector<SessionTask> found_ ABSL_GUARDED_BY(mu_);
  std::vector<Status> why_ ABSL_GUARDED_BY(mu_);  // the result of the last request to each
  std::optional<FanIn> all_;                      // constant once tasks are asked
  uint64_t wait_ ABSL_GUARDED_BY(mu_) = 0;
  std::string noted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void FindTasks(const FindTasksOptions& options, const CallControl& control,
               absl::AnyInvocable<void(StatusOr<std::vector<SessionTask>>)> done) {
  std::make_shared<Search>(options, std::move(done))->Start(control);
}

}  // namespace millrace
