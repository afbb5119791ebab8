#include "millrace/train/sync/sync_replicas_hook.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
      name_(std::move(name)) {}

Status SyncReplicasHook::AfterCreateSession(ClientSession* session, Coordinator* coordinator) {
  return is_chief_ ? BeginAsChief(session, coordinator) : BeginAsWorker(session, coordinator);
}

Status SyncReplicasHook::End(ClientSession* session) {
  return session->Run(is_chief_ ? nodes_->release : nodes_->pass_on);
}

Status SyncReplicasHook::BeginAsChief(ClientSession* session, Coordinator* coordinator) {
  MR_ASSIGN_OR_RETURN(const Tensors told, session->Run({nodes_->chief_ready, nodes_->chief_began}));
  if (told[0].num_elements() > 0) return FailedPrecondition(name_, ": variables without a value: ", Listed(told[0]));
  // If the parameter servers have seen a chief before, they have their tokens.
  const bool began_before = told[1].scalar<bool>();
  if (!began_before) MR_RETURN_IF_ERROR(session->Run(init_tokens_));
  MR_RETURN_IF_ERROR(session->Run(nodes_->chief_init));
  return updates_.Start(session, coordinator);
}

Status SyncReplicasHook::BeginAsWorker(ClientSession* session, Coordinator* coordinator) {
  WaitSettings settings;
  settings.pause = [coordinator](absl::Duration time) { coordinator->WaitForStop(time); };
  settings.give_up = [coordinator] {
    return coordinator->ShouldStop() ? Cancelled("the training was stopped") : absl::OkStatus();
  };
  NamedWait wait(name_, std::move(settings), absl::InfiniteDuration(), nullptr);
  while (true) {
    MR_ASSIGN_OR_RETURN(const Tensors told, session->Run({nodes_->worker_ready}));
    if (told[0].num_elements() == 0) return session->Run(nodes_->local_step_init);
    MR_RETURN_IF_ERROR(
        wait.Again(absl::StrCat("the chief to begin synchronous training (missing: ", Listed(told[0]), ")")));
  }
}

}  // namespace millrace
