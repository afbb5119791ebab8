#include "millrace/net/sim/sim_network.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "millrace/net/sim/call.h"
#include "millrace/net/sim/state.h"
#include "millrace/net/sim/transport.h"

namespace millrace::net {
namespace {

constexpr const char* kKinds[] = {"request", "answer", "cancel", "message"};

}  // namespace

void SimNetwork::State::Log(absl::string_view what) {
  log.push_back(absl::StrFormat("%12.6f %s", absl::ToDoubleSeconds(loop.now() - absl::UnixEpoch()), what));
}

absl::Duration SimNetwork::State::Delay(size_t bytes) {
  absl::Duration delay = options.min_delay + (options.max_delay - options.min_delay) * loop.Random();
  if (options.delayed > 0 && loop.Random() < options.delayed) delay += options.max_extra_delay * loop.Random();
  if (options.bytes_per_second > 0) delay += absl::Seconds(static_cast<double>(bytes) / options.bytes_per_second);
  return delay;
}

std::string SimNetwork::State::Describe(const SimMessage& message) {
  return absl::StrCat(kKinds[static_cast<int>(message.kind)], " #", message.call, " ", message.from, " -> ", message.to,
                      " ", message.method);
}

bool SimNetwork::State::Send(const SimMessage& message, std::function<void()> deliver, std::function<void()> lost,
                             bool once) {
  SimFate fate = decide == nullptr ? SimFate::kByChance : decide(message);
  const std::string text = Describe(message);
  if (dead.contains(message.from)) return false;
  if (fate == SimFate::kByChance) {
    const double chance = loop.Random();
    if (chance < options.lost) {
      fate = SimFate::kLose;
    } else if (chance < options.lost + options.duplicated) {
      fate = SimFate::kDuplicate;
    }
  }
  if (fate == SimFate::kLose || IsCut(message.from, message.to)) {
    Log(absl::StrCat("lost: ", text));
    if (options.reset_after != absl::InfiniteDuration()) loop.After(options.reset_after, "", std::move(lost));
    return false;
  }
  for (int copies = fate == SimFate::kDuplicate && !once ? 2 : 1; copies > 0; --copies) {
    auto arrive = [this, text, deliver, copies, once] {
      if (!once) Log(copies == 2 ? absl::StrCat("again: ", text) : text);
      deliver();
    };
    // A hanging host does not send either: its messages leave when it resumes.
    const absl::Duration delay = Delay(message.bytes);
    if (loop.hangs(message.from)) {
      loop.After(absl::ZeroDuration(), message.from,
                 [this, delay, to = message.to, arrive] { loop.After(delay, to, arrive); });
    } else {
      loop.After(delay, message.to, std::move(arrive));
    }
  }
  return true;
}

void SimNetwork::State::CutOff(const std::string& from, const std::string& to) {
  if (!cuts.try_emplace({from, to}, loop.now()).second) return;
  if (options.keepalive == absl::InfiniteDuration()) return;
  loop.After(options.keepalive, "", [this, from, to] {
    if (!IsBroken(from, to)) return;
    std::vector<RefPtr<SimCall>> broken;
    for (const auto& [id, call] : calls) {
      const bool between =
          (call->client() == from && call->server() == to) || (call->client() == to && call->server() == from);
      if (between) broken.push_back(ShareRef(call));
    }
    for (const auto& call : broken) call->Reset("");
  });
}

bool SimNetwork::State::IsBroken(const std::string& a, const std::string& b) {
  const auto broken = [&](const std::string& from, const std::string& to) {
    const auto it = cuts.find({from, to});
    return it != cuts.end() && loop.now() - it->second >= options.keepalive;
  };
  return broken(a, b) || broken(b, a);
}

namespace {

class SimConnections final : public ConnectionTable {
 public:
  SimConnections(SimNetwork::State* state, std::string host) : state_(state), host_(std::move(host)) {}
  std::vector<State> Look(absl::Span<const std::string> peers) override {
    std::vector<State> states;
    for (absl::string_view peer : peers) {
      const bool known = absl::ConsumePrefix(&peer, "sim:");
      const std::string caller(peer);
      const bool gone = state_->dead.contains(caller) || state_->IsBroken(caller, host_);
      states.push_back(!known ? State::kUnknown : gone ? State::kGone : State::kConnected);
    }
    return states;
  }

 private:
  SimNetwork::State* const state_;
  const std::string host_;
};

}  // namespace

SimNetwork::SimNetwork(uint64_t seed, SimOptions options) : state_(std::make_shared<State>(seed, std::move(options))) {}
// Events hold calls, calls hold the state, and messages in transit of a stream hold their call.
SimNetwork::~SimNetwork() {
  state_->loop.Close();
  std::vector<RefPtr<SimCall>> streaming;
  for (SimCall* call : state_->streaming) streaming.push_back(ShareRef(call));
  for (const auto& call : streaming) call->DropWhatIsOnTheWay();
}

Clock* SimNetwork::clock(const std::string& host) { return state_->loop.clock(host); }
TimerQueue* SimNetwork::timers(const std::string& host) { return state_->loop.timers(host); }
Scheduler* SimNetwork::scheduler(const std::string& host) { return state_->loop.scheduler(host); }

bool SimNetwork::RunUntil(absl::FunctionRef<bool()> condition, absl::Duration limit) {
  return state_->loop.RunUntil(condition, limit);
}

void SimNetwork::RunFor(absl::Duration time) {
  bool over = false;
  state_->loop.After(time, "", [&over] { over = true; });
  state_->loop.RunUntil([&] { return over; }, time);
}

void SimNetwork::Kill(const std::string& host) {
  Log(absl::StrCat("kill ", host));
  // A dead host does not hang: pending events run and find that their calls are over.
  state_->loop.Resume(host);
  state_->dead.insert(host);
  std::erase_if(state_->endpoints, [&](const auto& entry) {
    if (entry.second->host != host) return false;
    entry.second->stopped = true;
    return true;
  });
  std::vector<RefPtr<SimCall>> broken;
  for (const auto& [id, call] : state_->calls) {
    if (call->client() == host || call->server() == host) broken.push_back(ShareRef(call));
  }
  for (const auto& call : broken) call->Reset(host);
}

void SimNetwork::Restart(const std::string& host) {
  Log(absl::StrCat("restart ", host));
  state_->dead.erase(host);
}

void SimNetwork::Hang(const std::string& host) {
  Log(absl::StrCat("hang ", host));
  state_->loop.Hang(host);
}

void SimNetwork::Resume(const std::string& host) {
  Log(absl::StrCat("resume ", host));
  state_->loop.Resume(host);
}

void SimNetwork::Cut(const std::string& a, const std::string& b) {
  Log(absl::StrCat("cut ", a, " from ", b));
  state_->CutOff(a, b);
  state_->CutOff(b, a);
}

void SimNetwork::CutOneWay(const std::string& from, const std::string& to) {
  Log(absl::StrCat("cut ", from, " -> ", to));
  state_->CutOff(from, to);
}

void SimNetwork::Heal(const std::string& a, const std::string& b) {
  Log(absl::StrCat("heal ", a, " and ", b));
  state_->cuts.erase({a, b});
  state_->cuts.erase({b, a});
}

void SimNetwork::SetClock(const std::string& host, double rate, absl::Duration jump) {
  Log(absl::StrFormat("the clock of %s jumps by %s and runs at %g", host, absl::FormatDuration(jump), rate));
  state_->loop.SetClock(host, rate, jump);
}

void SimNetwork::SetOptions(SimOptions options) { state_->options = std::move(options); }
void SimNetwork::SetStreams(bool streams) { state_->streams = streams; }
void SimNetwork::OnMessage(std::function<SimFate(const SimMessage&)> decide) { state_->decide = std::move(decide); }
const std::vector<std::string>& SimNetwork::log() const { return state_->log; }
void SimNetwork::Log(absl::string_view what) { state_->Log(what); }

std::shared_ptr<ConnectionTable> SimNetwork::connections(const std::string& host) {
  return std::make_shared<SimConnections>(state_.get(), host);
}

std::unique_ptr<Transport> SimNetwork::NewTransport(const std::string& host) { return NewSimTransport(state_, host); }

}  // namespace millrace::net
