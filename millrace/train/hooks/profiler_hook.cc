#include "millrace/train/hooks/profiler_hook.h"

#include <cstdlib>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/api/variable.h"
#include "millrace/base/log.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/cluster/watch/measure_clock.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/train/timeline/merge_timelines.h"
#include "millrace/train/timeline/profile_variables.h"
#include "nlohmann/json.hpp"

namespace millrace {

StatusOr<std::unique_ptr<ProfilerHook>> ProfilerHook::Make(ProfilerHookOptions options) {
  if (options.output_dir.empty()) return InvalidArgument("ProfilerHook: output_dir is empty");
  if (options.every_steps < 0 || options.every < absl::ZeroDuration())
    return InvalidArgument("ProfilerHook: every_steps and every must not be negative");
  const int choices = !options.steps.empty() + (options.every_steps > 0) + (options.every > absl::ZeroDuration());
  if (choices != 1) return InvalidArgument("ProfilerHook: give one of steps, every_steps and every");
  std::optional<Range> range;
  if (!options.steps.empty()) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(options.steps, absl::MaxSplits(':', 1));
    range = Range{0, 0};
    const bool one = options.steps.find(':') == std::string::npos;
    bool good = absl::SimpleAtoi(parts.first, &range->first) && range->first >= 0 && range->first < INT64_MAX;
    if (one) {
      range->last = good ? range->first + 1 : 0;
    } else {
      good = good && absl::SimpleAtoi(parts.second, &range->last) && range->last > range->first;
    }
    if (!good)
      return InvalidArgument("'", options.steps,
                             "' is not a range of steps to profile: write 100, or 100:105 for the five steps from 100");
  }
  return std::unique_ptr<ProfilerHook>(new ProfilerHook(std::move(options), range));
}

ProfilerHook::ProfilerHook(ProfilerHookOptions options, std::optional<Range> range)
    : options_(std::move(options)), range_(range), last_traced_(options_.clock->Now()) {}

ProfilerHook::~ProfilerHook() = default;

Status ProfilerHook::Begin(const Scope& scope) {
  for (const Var& variable : GlobalVariables(scope)) {
    if (variable.var_name() == "global_step") global_step_ = variable;
  }
  return absl::OkStatus();
}

Status ProfilerHook::AfterCreateSession(ClientSession* session, Coordinator*) {
  if (global_step_.empty() || Done()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const Tensors values, session->Run({global_step_}));
  step_ = values[0].scalar<int64_t>();
  if (traced_ == 0) last_traced_step_ = step_;
  return absl::OkStatus();
}

bool ProfilerHook::Done() const { return range_ && traced_ > 0 && step_ >= range_->last; }

bool ProfilerHook::Wanted() const {
  if (range_) return step_ >= range_->first && (step_ < range_->last || traced_ == 0);
  if (options_.every_steps > 0) return step_ - last_traced_step_ >= options_.every_steps;
  return options_.clock->Now() - last_traced_ >= options_.every;
}

bool ProfilerHook::IsNear() const {
  if (range_) return step_ + 1 >= range_->first;
  return options_.every_steps > 0 && step_ + 1 - last_traced_step_ >= options_.every_steps;
}

StatusOr<SessionRunArgs> ProfilerHook::BeforeRun(SessionRunContext*) {
  SessionRunArgs args;
  if (Done()) return args;
  tracing_ = Wanted();
  args.trace = tracing_;
  if (!global_step_.empty()) args.fetches = {global_step_};
  begun_ = options_.clock->Now();
  return args;
}

Status ProfilerHook::AfterRun(SessionRunContext* context, const SessionRunValues& values) {
  const bool was_traced = std::exchange(tracing_, false) && values.metadata != nullptr;
  if (was_traced) {
    ++traced_;
    last_traced_step_ = step_;
    last_traced_ = options_.clock->Now();
    Write(values.metadata->step_stats());
  }
  if (global_step_.empty()) {
    ++step_;
  } else if (!values.results.empty()) {
    step_ = values.results[0].scalar<int64_t>();
    // The run may have read the step before or after it incremented it.
    if ((was_traced || IsNear()) && context->session != nullptr) {
      MR_ASSIGN_OR_RETURN(const Tensors now, context->session->Run({global_step_}));
      step_ = now[0].scalar<int64_t>();
    }
  }
  return absl::OkStatus();
}

void ProfilerHook::Write(const ::tensorflow::StepStats& stats) {
  TimelinePart part;
  part.set_task(options_.task);
  part.set_global_step(step_);
  part.set_begin_nanos(absl::ToUnixNanos(begun_));
  part.set_end_nanos(absl::ToUnixNanos(last_traced_));
  *part.mutable_step_stats() = stats;
  MeasureClocks(&part);
  if (const Status status = WriteTimelinePart(part, options_.output_dir, options_.files); !status.ok()) {
    MR_LOG(Warning, "the profile of step ", step_, " is lost: ", status.message());
  }
}

void ProfilerHook::MeasureClocks(TimelinePart* part) {
  if (options_.target.empty()) return;
  std::set<std::string> tasks = {part->task()};
  for (const ::tensorflow::DeviceStepStats& device : part->step_stats().dev_stats()) {
    if (const StatusOr<TaskId> id = TaskId::Of(device.device()); id.ok()) tasks.insert(id->name());
  }
  net::Transport* transport = options_.transport;
  if (transport == nullptr) {
    if (own_transport_ == nullptr) {
      StatusOr<std::shared_ptr<const TlsCredentials>> tls = TlsFromEnvironment();
      if (!tls.ok()) MR_LOG(Warning, "cannot measure the clocks of the cluster: ", tls.status().message());
      own_transport_ = net::NewGrpcTransport({.tls = tls.ok() ? *std::move(tls) : nullptr});
    }
    transport = own_transport_.get();
  }
  const std::string target(absl::StripPrefix(options_.target, "grpc://"));
  // Every worker also reads the clock of the cluster's first task, so that all workers have one clock in common.
  const std::vector<TaskView> views = AskCluster(transport, target, absl::Seconds(2));
  if (!views[0].answer.ok()) MR_LOG(Warning, "cannot measure the clocks of the cluster: ", views[0].answer.message());
  bool first = true;
  for (const TaskStatus::ClusterTask& task : views[0].status.cluster()) {
    if (!std::exchange(first, false) && !tasks.contains(task.task())) continue;
    const StatusOr<ClockReading> reading = MeasureClock(transport, task.address(), {.clock = options_.clock});
    if (!reading.ok()) continue;  // a TensorFlow task, or one that is gone: its messages bound its clock
    TimelinePart::Clock* clock = part->add_clocks();
    clock->set_task(task.task());
    clock->set_offset_nanos(absl::ToInt64Nanoseconds(reading->offset));
    clock->set_error_nanos(absl::ToInt64Nanoseconds(reading->error));
  }
}

StatusOr<std::unique_ptr<SessionRunHook>> ProfilerHookFromEnvironment(const std::string& target) {
  const char* const steps = std::getenv(kProfileStepsVariable);
  const char* const directory = std::getenv(kProfileDirVariable);
  if (steps == nullptr || *steps == '\0') return std::unique_ptr<SessionRunHook>();
  if (directory == nullptr || *directory == '\0')
    return InvalidArgument(kProfileStepsVariable, " is set and ", kProfileDirVariable, " is not");
  ProfilerHookOptions options{.output_dir = directory, .steps = steps, .target = target};
  if (const char* const text = std::getenv("TF_CONFIG"); text != nullptr && *text != '\0') {
    // Errors in TF_CONFIG are reported where the cluster is built from it.
    const nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto find = [](const nlohmann::json& object, const char* key) {
      return object.is_object() && object.contains(key) ? object[key] : nlohmann::json();
    };
    const nlohmann::json task = find(config, "task"), type = find(task, "type"), index = find(task, "index");
    if (type.is_string() && index.is_number_integer()) {
      options.task = TaskId{type.get<std::string>(), index.get<int>()}.name();
      const nlohmann::json addresses = find(find(config, "cluster"), type.get<std::string>().c_str());
      const size_t at = index.get<size_t>();
      if (options.target.empty() && addresses.is_array() && at < addresses.size() && addresses[at].is_string()) {
        options.target = absl::StrCat("grpc://", addresses[at].get<std::string>());
      }
    }
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<ProfilerHook> hook, ProfilerHook::Make(std::move(options)));
  return std::unique_ptr<SessionRunHook>(std::move(hook));
}

}  // namespace millrace
