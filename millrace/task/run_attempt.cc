#include "millrace/task/run_attempt.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// The wait for the end of an earlier attempt. The second of two events goes on: the wait is set up, or it is over.
struct EarlierAttempt {
  RunAttemptOptions options;
  absl::AnyInvocable<void(StatusOr<RunAttempt>)> begun;
  RunAttempt attempt;
  Status result;
  std::atomic<bool> second{false};
  CancellationManager::Token token = 0;
  uint64_t wait = 0;

  void Arrive() {
    if (!second.exchange(true)) return;
    // A cancellation that runs concurrently finds that the wait is over.
    if (token != 0 && !options.cancellation->IsCancelled()) options.cancellation->Deregister(token);
    if (wait != 0) options.waits->End(wait);
    auto go_on = [tell = std::move(begun), told = result.ok() ? StatusOr<RunAttempt>(attempt) : result]() mutable {
      tell(std::move(told));
    };
    options.pool != nullptr ? options.pool->Schedule(std::move(go_on)) : go_on();
  }
};

}  // namespace

void BeginAttempt(RunAttemptOptions options, absl::AnyInvocable<void(StatusOr<RunAttempt>)> begun) {
  auto earlier = std::make_shared<EarlierAttempt>();
  earlier->options = std::move(options);
  earlier->begun = std::move(begun);
  const RunAttemptOptions& o = earlier->options;
  StatusOr<RunRecords::Attempt> entered = o.resources->runs().Begin(o.identity, [earlier](Status status) {
    earlier->result = std::move(status);
    earlier->Arrive();
  });
  if (!entered.ok()) return earlier->begun(entered.status());
  earlier->attempt = {.resources = o.resources, .record = entered->record};
  if (!entered->waits) return earlier->begun(std::move(earlier->attempt));
  if (o.waits != nullptr) {
    earlier->wait = o.waits->Begin(
        "session", absl::StrCat("the end of an earlier attempt of run ", o.identity.number, " on this task"),
        o.step_id);
  }
  if (o.cancellation != nullptr) {
    const auto give_up = [resources = o.resources, record = entered->record, identity = o.identity,
                          cancellation = o.cancellation] {
      resources->runs().GiveUp(*record, identity, cancellation->status());
    };
    earlier->token = o.cancellation->NewToken();
    if (!o.cancellation->Register(earlier->token, give_up)) {
      earlier->token = 0;
      give_up();
    }
  }
  earlier->options.cancel_earlier(*entered->record,
                                  Aborted("run ", o.identity.number, " was started again: this attempt is given up"));
  earlier->Arrive();
}

}  // namespace millrace
