#include "millrace/train/timeline/timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "millrace/cluster/watch/hang_report.h"
#include "millrace/executor/step_stats.h"
#include "millrace/graph/device_name.h"
#include "millrace/graph/op_schema.h"
#include "millrace/train/timeline/clock_alignment.h"
#include "millrace/train/timeline/trace_writer.h"

namespace millrace {
namespace {

// The order of lanes within a task.
enum LaneOrder { kSteps, kCalls, kThreads, kWaiting, kReceives, kSends };

// Times and durations are clamped to these limits, the year 2116 and 36 years, so that sums and differences do not
// overflow.
constexpr int64_t kLastTime = int64_t{1} << 62;
constexpr int64_t kLongest = int64_t{1} << 60;

// The task of a device, "/job:ps/replica:0/task:0"; the whole name if it names no task.
std::string TaskOf(absl::string_view device) {
  const size_t at = device.find("/device:");
  return std::string(at == absl::string_view::npos ? device : device.substr(0, at));
}

// "CPU:0".
std::string DeviceOf(absl::string_view device) {
  const size_t at = device.find("/device:");
  return std::string(at == absl::string_view::npos ? device : device.substr(at + 8));
}

int64_t Time(int64_t nanos) { return std::clamp<int64_t>(nanos, 0, kLastTime); }
int64_t TimeOfMicros(int64_t micros) { return std::clamp<int64_t>(micros, 0, kLastTime / 1000) * 1000; }
int64_t Length(int64_t size) { return std::clamp<int64_t>(size, 0, kLongest); }

struct Span {
  int64_t start = 0, end = 0;
};

// Also handles TensorFlow's servers that report microseconds only.
Span SpanOf(const pb::NodeExecStats& event) {
  const int64_t start =
      event.all_start_nanos() != 0 ? Time(event.all_start_nanos()) : TimeOfMicros(event.all_start_micros());
  return {.start = start,
          .end = start + Length(event.all_end_rel_nanos() != 0 ? event.all_end_rel_nanos()
                                                               : TimeOfMicros(event.all_end_rel_micros()))};
}

// The parsed label of a RecvTensor.
struct Received {
  std::string tensor, from, to;
  int64_t bytes = 0;
  int64_t sent = 0;  // on the sender's clock; 0: unknown
  Span span;
  // The tensor was pushed, not requested: only its arrival is known.
  bool pushed() const { return span.start == span.end; }
};

std::optional<Received> ReceivedOf(const pb::NodeExecStats& event) {
  if (event.node_name() != kRecvTensor) return std::nullopt;
  absl::string_view label = event.timeline_label();
  const size_t bracket = label.find("] "), to = label.rfind(" to ");
  if (bracket == absl::string_view::npos || to == absl::string_view::npos) return std::nullopt;
  const size_t from = label.rfind(" from ", to);
  if (from == absl::string_view::npos || from < bracket) return std::nullopt;
  Received received;
  received.tensor = std::string(label.substr(bracket + 2, from - bracket - 2));
  received.from = std::string(label.substr(from + 6, to - from - 6));
  received.to = std::string(label.substr(to + 4));
  if (event.memory_size() > 0) received.bytes = Length(event.memory(0).total_bytes());
  received.sent = TimeOfMicros(event.scheduled_micros());
  received.span = SpanOf(event);
  return received;
}

// "MatMul" for "layer1/MatMul = MatMul(x, w)".
std::string OpOf(const pb::NodeExecStats& event) {
  const absl::string_view label = event.timeline_label();
  const size_t equals = label.find(" = "), paren = label.find('(');
  if (equals == absl::string_view::npos || paren == absl::string_view::npos || paren < equals + 3)
    return event.node_name();
  return std::string(label.substr(equals + 3, paren - equals - 3));
}

// False for an op that this program does not know, as from a TensorFlow server.
bool Waits(absl::string_view op) {
  const OpSchema* const schema = OpRegistry::Global().FindOrNull(op);
  return schema != nullptr && schema->Has(OpTrait::kWaits);
}

// The clock that the run's begin and end were read from: that of the program that ran it.
std::string ClientOf(const TimelinePart& part) { return absl::StrCat("the program of ", part.task()); }

class Builder {
 public:
  explicit Builder(const std::vector<TimelinePart>& parts) : parts_(parts) {}

  std::string Json() {
    for (const TimelinePart& part : parts_) Bound(part);
    reference_ = Reference();
    int64_t slack = 0;
    clocks_ = alignment_.Solve(reference_, &slack);
    for (const TimelinePart& part : parts_) Emit(part);
    const int64_t origin = trace_.FirstStart();
    return absl::StrCat("{\"displayTimeUnit\": \"ms\", \"otherData\": {", About(origin, slack),
                        "},\n\"traceEvents\": ", trace_.Events(Processes(), origin), "}\n");
  }

 private:
  void Bound(const TimelinePart& part) {
    for (const TimelinePart::Clock& clock : part.clocks()) {
      const int64_t offset = std::clamp(clock.offset_nanos(), -kLongest, kLongest), error = Length(clock.error_nanos());
      alignment_.Bound(clock.task(), ClientOf(part), offset - error, offset + error);
    }
    std::map<std::string, Span> whole;  // by task: the time span of its work in the step
    for (const pb::DeviceStepStats& device : part.step_stats().dev_stats()) {
      const std::string task = TaskOf(device.device());
      tasks_.insert(task);
      for (const pb::NodeExecStats& event : device.node_stats()) {
        const std::optional<Received> received = ReceivedOf(event);
        if (received && received->sent != 0) {
          // The tensor was sent between the request, if there was one, and the arrival. The sender's time is truncated
          // to microseconds.
          const std::string sender = TaskOf(received->from);
          const int64_t most = received->pushed() ? INT64_MAX : received->sent + 1000 - received->span.start;
          alignment_.Bound(sender, task, received->sent - received->span.end, most);
        }
        if (event.node_name() == kRunGraph) continue;
        const Span span = SpanOf(event);
        const auto [it, is_new] = whole.try_emplace(task, span);
        if (is_new) continue;
        it->second.start = std::min(it->second.start, span.start);
        it->second.end = std::max(it->second.end, span.end);
      }
    }
    for (const pb::DeviceStepStats& device : part.step_stats().dev_stats()) {
      for (const pb::NodeExecStats& event : device.node_stats()) {
        absl::string_view task = event.timeline_label();
        if (event.node_name() != kRunGraph || !absl::ConsumePrefix(&task, absl::StrCat(kRunGraph, " at "))) continue;
        const auto ran = whole.find(std::string(task));
        if (ran == whole.end()) continue;
        const Span call = SpanOf(event);
        alignment_.Bound(std::string(task), TaskOf(device.device()), ran->second.end - call.end,
                         ran->second.start - call.start);
      }
    }
  }

  // The reference is the task that is best known: seen by every program, a ps before others, then the lowest name.
  std::string Reference() const {
    std::map<std::string, int> seen;
    for (const std::string& task : tasks_) seen[task];
    for (const TimelinePart& part : parts_) {
      std::set<std::string> here;
      for (const TimelinePart::Clock& clock : part.clocks()) here.insert(clock.task());
      for (const auto& device : part.step_stats().dev_stats()) here.insert(TaskOf(device.device()));
      for (const std::string& task : here) ++seen[task];
    }
    std::string best;
    const auto key = [&](const std::string& task) {
      return std::tuple(-seen[task], absl::StrContains(task, "/job:ps/") ? 0 : 1, task);
    };
    for (const auto& [task, count] : seen) {
      if (best.empty() || key(task) < key(best)) best = task;
    }
    return best;
  }

  int64_t Aligned(const std::string& clock, int64_t at) const {
    const auto it = clocks_.find(clock);
    return it == clocks_.end() ? at : at - it->second.offset;
  }

  void Emit(const TimelinePart& part) {
    const std::string step =
        absl::StrCat("\"step\": ", part.global_step(), ", \"run_by\": ", JsonText(ShortTaskName(part.task())));
    if (part.end_nanos() > part.begin_nanos()) {
      const std::string client = ClientOf(part);
      trace_.Add(ShortTaskName(part.task()), {kSteps, "steps"},
                 {.name = absl::StrCat("step ", part.global_step()),
                  .category = "Step",
                  .start = Aligned(client, Time(part.begin_nanos())),
                  .end = Aligned(client, Time(part.end_nanos())),
                  .args = step});
    }
    for (const pb::DeviceStepStats& device : part.step_stats().dev_stats()) {
      for (const pb::NodeExecStats& event : device.node_stats()) EmitEvent(device.device(), event, step);
    }
  }

  void EmitEvent(const std::string& device, const pb::NodeExecStats& node, const std::string& step) {
    const std::string task = TaskOf(device), process = ShortTaskName(task);
    const Span span = SpanOf(node);
    TraceEvent event{.start = Aligned(task, span.start), .end = Aligned(task, span.end), .args = step};
    if (const std::optional<Received> received = ReceivedOf(node))
      return EmitTransfer(*received, task, std::move(event));
    if (node.node_name() == kRunGraph) {
      event.name = node.timeline_label();
      event.category = "Call";
      return trace_.Add(process, {kCalls, "calls"}, std::move(event));
    }
    const std::string op = OpOf(node);
    double bytes = 0;
    for (const auto& memory : node.memory()) bytes += static_cast<double>(memory.total_bytes());
    // The op comes first so that it is visible in short slices.
    event.name = op == node.node_name() ? op : absl::StrCat(op, " ", node.node_name());
    const bool waits = Waits(op);
    event.category = waits ? "Wait" : "Op";
    absl::StrAppend(&event.args, ", \"op\": ", JsonText(op), ", \"node\": ", JsonText(node.node_name()),
                    ", \"label\": ", JsonText(node.timeline_label()), ", \"bytes\": ", absl::StrFormat("%.0f", bytes));
    // Threads are numbered in order of appearance, because TensorFlow's thread ids are long.
    const auto [thread, is_new] = threads_[task].try_emplace(node.thread_id(), threads_[task].size() + 1);
    trace_.Add(process,
               waits ? TraceLane{kWaiting, absl::StrCat(DeviceOf(device), " waiting")}
                     : TraceLane{kThreads, absl::StrFormat("%s thread %02d", DeviceOf(device), thread->second),
                                 /*nests=*/true},
               std::move(event));
  }

  void EmitTransfer(const Received& received, const std::string& task, TraceEvent event) {
    const std::string sender = TaskOf(received.from);
    const std::string what = absl::StrCat(", \"tensor\": ", JsonText(received.tensor), ", \"bytes\": ", received.bytes,
                                          ", \"from\": ", JsonText(received.from), ", \"to\": ", JsonText(received.to));
    event.name = absl::StrCat("RecvTensor ", received.tensor);
    event.category = "Transfer";
    event.args += what;
    const int64_t end = event.end;
    if (received.sent != 0) {
      const int64_t sent = Aligned(sender, received.sent);
      if (received.pushed()) event.start = std::min(sent, end - 1);
      const int64_t start = event.start;
      event.arrow_in = ++arrows_;
      absl::StrAppend(&event.args, ", \"waited_us\": ", std::max<int64_t>(0, sent - start) / 1000);
      if (!received.pushed()) {
        // Clamped to the receiver's interval, as far as the clocks are known.
        const int64_t shown = std::clamp(sent, start, end - 1);
        event.inside.push_back({.name = absl::StrCat("transfer of ", received.tensor),
                                .category = "Transfer",
                                .start = shown,
                                .end = end,
                                .args = event.args});
      }
      trace_.Add(ShortTaskName(sender), {kSends, "sends"},
                 {.name = absl::StrCat("send ", received.tensor),
                  .category = "Transfer",
                  .start = sent,
                  .end = std::max(end, sent + 1),
                  .args = event.args,
                  .arrow_out = arrows_});
    }
    trace_.Add(ShortTaskName(task), {kReceives, "receives"}, std::move(event));
  }

  std::vector<std::string> Processes() const {
    // Tasks that run steps come first, because readers start there.
    std::vector<std::string> names;
    std::set<std::string> programs;
    for (const TimelinePart& part : parts_) programs.insert(part.task());
    for (const std::string& task : programs) names.push_back(ShortTaskName(task));
    for (const std::string& task : tasks_) {
      if (!programs.contains(task)) names.push_back(ShortTaskName(task));
    }
    return names;
  }

  std::string About(int64_t origin, int64_t slack) const {
    std::vector<std::string> clocks;
    for (const auto& [clock, estimate] : clocks_) {
      clocks.push_back(estimate.known ? absl::StrFormat("%s: {\"offset_us\": %.3f, \"error_us\": %.3f}",
                                                        JsonText(clock), estimate.offset / 1e3, estimate.error / 1e3)
                                      : absl::StrFormat("%s: {\"offset_us\": 0, \"error_us\": null}", JsonText(clock)));
    }
    return absl::StrFormat("\"clock\": %s, \"epoch_nanos\": \"%d\", \"clock_inconsistency_us\": %.3f, \"clocks\": {%s}",
                           JsonText(reference_), origin, slack / 1e3, absl::StrJoin(clocks, ", "));
  }

  const std::vector<TimelinePart>& parts_;
  std::set<std::string> tasks_;
  ClockAlignment alignment_;
  std::string reference_;
  std::map<std::string, ClockAlignment::Estimate> clocks_;
  std::map<std::string, std::map<uint32_t, size_t>> threads_;
  int64_t arrows_ = 0;
  TraceWriter trace_;
};

}  // namespace

std::string Timeline::ToJson() const { return Builder(parts_).Json(); }

}  // namespace millrace
