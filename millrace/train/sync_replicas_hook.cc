#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "millrace/train/named_wait.h"
#include "millrace/train/sync_replicas_nodes.h"

namespace millrace {
namespace {

std::string Listed(const Tensor& names) { return absl::StrJoin(names.flat<std::string>(), ", "); }

}  // namespace

class SyncReplicasOptimizer::Hook : public SessionRunHook {
 public:
  Hook(std::shared_ptr<const Nodes> nodes, QueueRunner updates, Operation init_tokens, bool is_chief, std::string name)
      : nodes_(std::move(nodes)), updates_(std::move(updates)), init_tokens_(std::move(init_tokens)), is_chief_(is_chief), name_(std::move(name)) {}

  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override {
    return is_chief_ ? BeginAsChief(session, coordinator) : BeginAsWorker(session, coordinator);
  }
  Status End(ClientSession* session) override { return session->Run(is_chief_ ? nodes_->release : nodes_->pass_on); }

 private:
  Status BeginAsChief(ClientSession* session, Coordinator* coordinator) {
    MR_ASSIGN_OR_RETURN(const Tensors told, session->Run({nodes_->chief_ready, nodes_->chief_began}));
    if (told[0].num_elements() > 0) return FailedPrecondition(name_, ": variables without a value: ", Listed(told[0]));
    // Parameter servers that knew a chief have their tokens.
    const bool began_before = told[1].scalar<bool>();
    if (!began_before) MR_RETURN_IF_ERROR(session->Run(init_tokens_));
    MR_RETURN_IF_ERROR(session->Run(nodes_->chief_init));
    return updates_.Start(session, coordinator);
  }

  Status BeginAsWorker(ClientSession* session, Coordinator* coordinator) {
    WaitSettings settings;
    settings.pause = [coordinator](absl::Duration time) { coordinator->WaitForStop(time); };
    settings.give_up = [coordinator] { return coordinator->ShouldStop() ? Cancelled("the training was stopped") : absl::OkStatus(); };
    NamedWait wait(name_, std::move(settings), absl::InfiniteDuration(), nullptr);
    while (true) {
      MR_ASSIGN_OR_RETURN(const Tensors told, session->Run({nodes_->worker_ready}));
      if (told[0].num_elements() == 0) return session->Run(nodes_->local_step_init);
      MR_RETURN_IF_ERROR(wait.Again(absl::StrCat("the chief to begin synchronous training (missing: ", Listed(told[0]), ")")));
    }
  }

  const std::shared_ptr<const Nodes> nodes_;
  const QueueRunner updates_;
  const Operation init_tokens_;
  const bool is_chief_;
  const std::string name_;
};

std::unique_ptr<SessionRunHook> SyncReplicasOptimizer::MakeSessionRunHook(bool is_chief, int num_tokens) const {
  // What is wrong with the tokens, or with the order of the calls, is told by the session that the hook is for.
  class Broken : public SessionRunHook {
   public:
    explicit Broken(Status status) : status_(std::move(status)) {}
    Status Begin(const Scope&) override { return status_; }
    Status AfterCreateSession(ClientSession*, Coordinator*) override { return status_; }

   private:
    const Status status_;
  };
  StatusOr<Operation> init_tokens = InitTokensOp(num_tokens);
  if (!init_tokens.ok()) return std::make_unique<Broken>(init_tokens.status());
  return std::make_unique<Hook>(nodes_, ChiefQueueRunner(), *std::move(init_tokens), is_chief, options_.name);
}

}  // namespace millrace
