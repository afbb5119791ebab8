#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/base/log.h"
#include "millrace/train/bounded_staleness.h"

namespace millrace {

class BoundedStaleness::Hook : public SessionRunHook {
 public:
  Hook(Operation join, Operation leave, Output alive, const BoundedStalenessOptions& options)
      : join_(std::move(join)), leave_(std::move(leave)), alive_(std::move(alive)), lease_(options.lease), name_(options.name) {}

  Status Begin(const Scope&) override {
    if (join_.empty()) return FailedPrecondition(name_, ": call Bound before the hook is made");
    return absl::OkStatus();
  }
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override {
    MR_RETURN_IF_ERROR(session->Run(join_));
    if (lease_ == absl::InfiniteDuration()) return absl::OkStatus();
    return coordinator->Loop(absl::StrCat(name_, "/keep_alive"), lease_ / 3, [this, session, took_part = std::vector<bool>()]() mutable {
      MR_ASSIGN_OR_RETURN(const Tensors told, session->Run({alive_}));
      const auto now = told[0].flat<bool>();
      took_part.resize(now.size(), true);
      for (size_t i = 0; i < took_part.size(); ++i) {
        if (took_part[i] && !now[i]) {
          MR_LOG(Warning, name_, ": worker ", i, " left or was silent for ", absl::FormatDuration(lease_), ": the others no longer wait for it");
        }
        took_part[i] = now[i];
      }
      return absl::OkStatus();
    });
  }
  Status End(ClientSession* session) override { return session->Run(leave_); }

 private:
  const Operation join_, leave_;
  const Output alive_;
  const absl::Duration lease_;
  const std::string name_;
};

std::unique_ptr<SessionRunHook> BoundedStaleness::MakeSessionRunHook() const {
  return std::make_unique<Hook>(join_op(), leave_op(), keep_alive_op().output(0), options_);
}

}  // namespace millrace
