#include "millrace/cluster/watch/task_rates.h"

#include <algorithm>
#include <map>

#include "millrace/net/address.h"

namespace millrace {
namespace {

using Peer = TaskStatus::Peer;

const TaskView* Find(absl::Span<const TaskView> tasks, const std::string& task) {
  for (const TaskView& view : tasks) {
    if (view.task == task) return &view;
  }
  return nullptr;
}

bool IsSameProcess(const TaskStatus& a, const TaskStatus& b) {
  if (a.started_micros() != b.started_micros() || a.devices_size() != b.devices_size()) return false;
  for (int i = 0; i < a.devices_size(); ++i) {
    if (a.devices(i).incarnation() != b.devices(i).incarnation()) return false;
  }
  // Counters only grow.
  return a.steps_finished() <= b.steps_finished() && a.parts_finished() <= b.parts_finished();
}

std::string WhyUnknown(const TaskView* before, const TaskView& after) {
  if (!after.answer.ok()) return "does not answer";
  if (after.is_tensorflow) return "runs TensorFlow, which reports no figures";
  if (!after.status.has_usage()) return "has a version that reports no figures";
  if (before == nullptr || !before->answer.ok() || before->is_tensorflow) return "did not answer the first time";
  if (!IsSameProcess(before->status, after.status)) return "was restarted meanwhile";
  if (after.status.now_micros() <= before->status.now_micros()) return "has a clock that was set back meanwhile";
  return "";
}

double Busy(const TaskStatus& status) { return status.usage().user_seconds() + status.usage().system_seconds(); }

// Sums up what a task reports about its peers; a peer may have several entries.
struct Traffic {
  int64_t sent = 0, received = 0, calls = 0;
};
using PeerKey = std::pair<std::string, bool>;

std::map<PeerKey, Traffic> TrafficOf(const TaskStatus& status) {
  std::map<PeerKey, Traffic> traffic;
  for (const Peer& peer : status.peers()) {
    Traffic& sum = traffic[{peer.peer(), peer.outgoing()}];
    sum.sent += peer.bytes_sent();
    sum.received += peer.bytes_received();
    sum.calls += peer.calls();
  }
  return traffic;
}

// A peer that was not there before started from zero. One that has less than before has lost a connection together with
// its counts, and what is left does not tell anything about this interval.
int64_t Growth(int64_t before, int64_t after) { return std::max<int64_t>(0, after - before); }

class Rates {
 public:
  Rates(absl::Span<const TaskView> before, absl::Span<const TaskView> after, const Ceilings& ceilings)
      : before_(before), after_(after), ceilings_(ceilings) {
    for (const TaskView& view : after) {
      if (!view.address.empty() && !view.task.empty()) task_at_[view.address] = view.task;
      // The address that was asked may be spelled differently in the cluster.
      for (const TaskStatus::ClusterTask& task : view.status.cluster()) task_at_.emplace(task.address(), task.task());
    }
  }

  std::vector<TaskRate> All() {
    std::vector<TaskRate> rates;
    for (const TaskView& view : after_) rates.push_back(OfTask(view));
    for (TaskRate& rate : rates) AddLink(&rate, rates);
    return rates;
  }

 private:
  TaskRate OfTask(const TaskView& after) const {
    TaskRate rate{.task = after.task, .address = after.address};
    const TaskView* before = Find(before_, after.task);
    rate.unknown = WhyUnknown(before, after);
    rate.cores = after.status.usage().cores();
    rate.host_cores = after.status.usage().host_cores();
    const bool known = rate.unknown.empty();
    const TaskStatus& now = after.status;
    if (known) {
      const TaskStatus& then = before->status;
      rate.seconds = static_cast<double>(now.now_micros() - then.now_micros()) / 1e6;
      rate.busy_cores = std::max(0.0, Busy(now) - Busy(then)) / rate.seconds;
      rate.host_busy_cores =
          std::max(0.0, now.usage().host_busy_seconds() - then.usage().host_busy_seconds()) / rate.seconds;
      rate.steps_per_second = static_cast<double>(now.steps_finished() - then.steps_finished()) / rate.seconds;
      rate.parts_per_second = static_cast<double>(now.parts_finished() - then.parts_finished()) / rate.seconds;
      rate.in_steps = std::max(0.0, static_cast<double>(now.steps_micros() - then.steps_micros()) / 1e6 / rate.seconds);
      rate.drives = rate.steps_per_second > 0;
      rate.runs = rate.parts_per_second > 0;
      for (const TaskStatus::Step& step : now.steps()) (step.driven_here() ? rate.drives : rate.runs) = true;
    }
    const std::map<PeerKey, Traffic> then = known ? TrafficOf(before->status) : std::map<PeerKey, Traffic>();
    std::map<PeerKey, Traffic> now_of = TrafficOf(now);
    for (const Peer& peer : now.peers()) {
      const auto found = now_of.find({peer.peer(), peer.outgoing()});
      if (found == now_of.end()) continue;  // another entry of the same peer
      rate.peers.push_back(OfPeer(peer, found->second, known ? &then : nullptr, rate));
      now_of.erase(found);
    }
    return rate;
  }

  PeerRate OfPeer(const Peer& peer, const Traffic& now, const std::map<PeerKey, Traffic>* then,
                  const TaskRate& task) const {
    const auto at = task_at_.find(peer.peer());
    PeerRate rate{.peer = at == task_at_.end() ? peer.peer() : at->second,
                  .outgoing = peer.outgoing(),
                  .lane = peer.lane(),
                  .why_not_better = peer.why_not_better(),
                  .bytes_sent = now.sent,
                  .bytes_received = now.received,
                  .calls = now.calls};
    if (then == nullptr) return rate;
    const auto found = then->find({peer.peer(), peer.outgoing()});
    const Traffic past = found == then->end() ? Traffic() : found->second;
    const double bytes =
        static_cast<double>(Growth(past.sent, now.sent)) + static_cast<double>(Growth(past.received, now.received));
    rate.gigabytes_per_second = bytes / task.seconds / 1e9;
    rate.calls_per_second = static_cast<double>(Growth(past.calls, now.calls)) / task.seconds;
    const double ceiling = CeilingOf(task, peer);
    if (ceiling > 0) rate.share = rate.gigabytes_per_second / ceiling;
    return rate;
  }

  double CeilingOf(const TaskRate& task, const Peer& peer) const {
    // A caller's address does not name a host of the cluster, but a lane over shared memory means the same host.
    const bool same = peer.lane() == "shm" || HostOf(peer.peer()) == HostOf(task.address);
    return same ? ceilings_.same_host : ceilings_.between_hosts;
  }

  // Its traffic as reported by itself, and as reported by its callers.
  void AddLink(TaskRate* rate, const std::vector<TaskRate>& all) const {
    double own = 0, own_share = 0, others = 0, others_share = 0;
    for (const PeerRate& peer : rate->peers) {
      own += peer.gigabytes_per_second;
      own_share += peer.share;
    }
    for (const TaskRate& other : all) {
      for (const PeerRate& peer : other.peers) {
        if (peer.peer != rate->task || rate->task.empty() || other.task == rate->task) continue;
        others += peer.gigabytes_per_second;
        others_share += peer.share;
      }
    }
    rate->gigabytes_per_second = std::max(own, others);
    rate->link_share = std::max(own_share, others_share);
  }

  const absl::Span<const TaskView> before_, after_;
  const Ceilings ceilings_;
  std::map<std::string, std::string> task_at_;  // by address
};

}  // namespace

std::string HostOf(const std::string& address) {
  const StatusOr<net::HostPort> parsed = net::ParseHostPort(address);
  if (!parsed.ok()) return address;
  return net::IsLoopback(parsed->host) ? "localhost" : parsed->host;
}

std::vector<TaskRate> RatesOf(absl::Span<const TaskView> before, absl::Span<const TaskView> after,
                              const Ceilings& ceilings) {
  return Rates(before, after, ceilings).All();
}

}  // namespace millrace
