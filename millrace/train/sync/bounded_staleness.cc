#include "millrace/train/sync/bounded_staleness.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/base/log.h"

namespace millrace {

struct BoundedStaleness::Nodes {
  Operation join = {}, leave = {}, keep_alive = {};
  Output steps = {};
};

class BoundedStaleness::Hook : public SessionRunHook {
 public:
  Hook(Operation join, Operation leave, Output alive, const BoundedStalenessOptions& options)
      : join_(std::move(join)),
        leave_(std::move(leave)),
        alive_(std::move(alive)),
        lease_(options.lease),
        name_(options.name) {}

  Status Begin(const Scope&) override {
    if (join_.empty()) return FailedPrecondition(name_, ": call Bound before MakeSessionRunHook");
    return absl::OkStatus();
  }
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override {
    MR_RETURN_IF_ERROR(session->Run(join_));
    if (lease_ == absl::InfiniteDuration()) return absl::OkStatus();
    return coordinator->Loop(absl::StrCat(name_, "/keep_alive"), lease_ / 3,
                             [this, session, took_part = std::vector<bool>()]() mutable {
                               MR_ASSIGN_OR_RETURN(const Tensors told, session->Run({alive_}));
                               const auto now = told[0].flat<bool>();
                               took_part.resize(now.size(), true);
                               for (size_t i = 0; i < took_part.size(); ++i) {
                                 if (took_part[i] && !now[i]) {
                                   MR_LOG(Warning, name_, ": worker ", i, " left, or was silent for ",
                                          absl::FormatDuration(lease_), ": the others no longer wait for it");
                                 }
                                 took_part[i] = now[i];
                               }
                               return absl::OkStatus();
                             });
  }
  // The others need not wait until this worker's program ends.
  StatusOr<std::string> OnNotice(ClientSession* session) override {
    MR_RETURN_IF_ERROR(session->Run(leave_));
    return std::string();
  }
  Status End(ClientSession* session) override { return session->Run(leave_); }

 private:
  const Operation join_, leave_;
  const Output alive_;
  const absl::Duration lease_;
  const std::string name_;
};

BoundedStaleness::BoundedStaleness(BoundedStalenessOptions options) : options_(std::move(options)) {}
BoundedStaleness::~BoundedStaleness() = default;

Operation BoundedStaleness::Bound(const Scope& scope, const Operation& train) {
  const auto wrong = [&](auto... what) {
    scope.UpdateStatus(InvalidArgument(options_.name, ": ", what...));
    return Operation(scope, nullptr);
  };
  if (!scope.ok()) return Operation(scope, nullptr);
  if (nodes_ != nullptr) return wrong("one BoundedStaleness bounds one training op");
  if (train.empty()) return wrong("there is no training op to bound");
  if (options_.num_workers < 1) return wrong("num_workers must be at least 1, but is ", options_.num_workers);
  if (options_.worker_index < 0 || options_.worker_index >= options_.num_workers) {
    return wrong("worker_index must be from 0 to ", options_.num_workers - 1, ", but is ", options_.worker_index);
  }
  if (options_.staleness && *options_.staleness < 0)
    return wrong("staleness must not be negative, but is ", *options_.staleness);
  if (options_.lease <= absl::ZeroDuration())
    return wrong("the lease must be positive, but is ", absl::FormatDuration(options_.lease));

  const Scope s = scope.ForComposite(options_.name);
  const Scope home = s.ColocateWith(GlobalStep(s.WithoutOpName()).handle());
  const int64_t index = options_.worker_index;
  const Output gate = Op(home.WithOpName("gate"), "MillraceStepGate", {},
                         {{"num_workers", options_.num_workers},
                          {"staleness", options_.staleness.value_or(-1)},
                          {"shared_name", options_.name}});
  auto nodes = std::make_shared<Nodes>();
  nodes->join = AddOp(home.WithOpName("join"), "MillraceStepGateJoin", {gate, index});
  nodes->leave = AddOp(home.WithOpName("leave"), "MillraceStepGateLeave", {gate, index});
  nodes->keep_alive = AddOp(home.WithOpName("keep_alive"), "MillraceStepGateKeepAlive",
                            {gate, index, absl::ToDoubleSeconds(options_.lease)});
  nodes->steps = Op(home.WithOpName("steps"), "MillraceStepGateSteps", {gate});
  const Operation pass =
      AddOp(home.WithControlDependencies({train}).WithOpName("pass"), "MillraceStepGatePass", {gate, index});
  if (!s.ok()) return Operation(scope, nullptr);
  nodes_ = std::move(nodes);
  return pass;
}

Operation BoundedStaleness::join_op() const { return nodes_ ? nodes_->join : Operation(); }
Operation BoundedStaleness::leave_op() const { return nodes_ ? nodes_->leave : Operation(); }
Operation BoundedStaleness::keep_alive_op() const { return nodes_ ? nodes_->keep_alive : Operation(); }
Output BoundedStaleness::steps() const { return nodes_ ? nodes_->steps : Output(); }

std::unique_ptr<SessionRunHook> BoundedStaleness::MakeSessionRunHook() const {
  return std::make_unique<Hook>(join_op(), leave_op(), keep_alive_op().output(0), options_);
}

}  // namespace millrace
