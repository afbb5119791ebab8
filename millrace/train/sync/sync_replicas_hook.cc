#include "millrace/train/sync/sync_replicas_hook.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "millrace/runtime/run_records.h"
#include "millrace/train/named_wait.h"

namespace millrace {
namespace {

std::string Listed(const Tensor& names) { return absl::StrJoin(names.flat<std::string>(), ", "); }

}  // namespace

SyncReplicasHook::SyncReplicasHook(std::shared_ptr<const SyncReplicasNodes> nodes, QueueRunner updates,
                                   Operation init_tokens, bool is_chief, std::string name)
    : nodes_(std::move(nodes)),
      updates_(std::move(updates)),
      init_tokens_(std::move(init_tokens)),
      is_chief_(is_chief),
      name_(std::move(name)),
      // The means that it had taken from the accumulators must fit into the record of its run.
      continues_updates_(nodes_->gradient_bytes <= RunRecordLimits().bytes_per_run) {}

Status SyncReplicasHook::AfterCreateSession(ClientSession* session, Coordinator* coordinator) {
  return is_chief_ ? BeginAsChief(session, coordinator) : BeginAsWorker(session, coordinator);
}

Status SyncReplicasHook::End(ClientSession* session) {
  return session->Run(is_chief_ ? nodes_->release : nodes_->pass_on);
}

Status SyncReplicasHook::BeginAsChief(ClientSession* session, Coordinator* coordinator) {
  MR_ASSIGN_OR_RETURN(const Tensors told, session->Run({nodes_->chief_ready, nodes_->chief_began, nodes_->continues}));
  if (told[0].num_elements() > 0) return FailedPrecondition(name_, ": variables without a value: ", Listed(told[0]));
  MR_RETURN_IF_ERROR(CheckContinues(session));
  // If the parameter servers have seen a chief before, they have their tokens.
  const bool began_before = told[1].scalar<bool>();
  if (!began_before) MR_RETURN_IF_ERROR(RunOnce(session, init_tokens_));
  // An update of an earlier session of this hook is continued, so that nothing of it is lost; but not if the training
  // goes back, with a parameter server that was started anew: it would take gradients for which it hands out no tokens.
  const bool continues = told[2].scalar<bool>() && has_begun_ && continues_updates_;
  if (!continues) runs_.Forget();
  MR_RETURN_IF_ERROR(RunOnce(session, continues ? nodes_->chief_resume : nodes_->chief_init));
  if (nodes_->fixed_order && !has_begun_) MR_RETURN_IF_ERROR(RunOnce(session, nodes_->local_step_init));
  has_begun_ = true;
  return updates_.Start(session, coordinator, continues_updates_ ? &runs_ : nullptr);
}

// The run that was under way is repeated at its own step, so the local step stays as it is.
Status SyncReplicasHook::CheckContinues(ClientSession* session) {
  if (!nodes_->fixed_order || !has_begun_) return absl::OkStatus();
  const auto went_back = [&](auto... how) {
    return FailedPrecondition(name_, ": the training went back", how...,
                              ", and the batches of this worker are those of later steps: start it again");
  };
  MR_ASSIGN_OR_RETURN(const Tensors is_set, session->Run({nodes_->local_step_is_set}));
  if (!is_set[0].scalar<bool>()) return went_back(", because a parameter server was started anew");
  MR_ASSIGN_OR_RETURN(const Tensors steps, session->Run({nodes_->local_step, nodes_->step_now}));
  const int64_t local = steps[0].scalar<int64_t>(), now = steps[1].scalar<int64_t>();
  if (local == now || local == now - 1) return absl::OkStatus();
  return went_back(" from step ", local, " to step ", now);
}

Status SyncReplicasHook::RunOnce(ClientSession* session, const Operation& op) {
  Tensors none;
  Status status = session->Run(RunOptions{.identity = begin_run_}, {}, {}, {op}, &none, nullptr);
  if (status.ok()) {
    begin_run_ = begin_run_.Next();
  } else {
    ++begin_run_.attempt;
  }
  return status;
}

Status SyncReplicasHook::BeginAsWorker(ClientSession* session, Coordinator* coordinator) {
  WaitSettings settings{.clock = coordinator->clock()};
  settings.pause = [coordinator](absl::Duration time) { coordinator->WaitForStop(time); };
  settings.give_up = [coordinator] {
    return coordinator->ShouldStop() ? Cancelled("the training was stopped") : absl::OkStatus();
  };
  NamedWait wait(name_, std::move(settings), absl::InfiniteDuration(), nullptr);
  MR_RETURN_IF_ERROR(CheckContinues(session));
  while (true) {
    MR_ASSIGN_OR_RETURN(const Tensors told, session->Run({nodes_->worker_ready}));
    if (told[0].num_elements() == 0) {
      if (nodes_->fixed_order && has_begun_) return absl::OkStatus();
      MR_RETURN_IF_ERROR(session->Run(nodes_->local_step_init));
      has_begun_ = true;
      return absl::OkStatus();
    }
    MR_RETURN_IF_ERROR(
        wait.Again(absl::StrCat("the chief to begin synchronous training (missing: ", Listed(told[0]), ")")));
  }
}

}  // namespace millrace
