// ParallelMap: maps several elements at once on the iterator's own threads and returns them in order.
#include <algorithm>
#include <deque>
#include <utility>

#include "millrace/base/exception_status.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/data/stage.h"

namespace millrace {
namespace data_internal {
namespace {

constexpr int64_t kMaxThreads = 64;

class ParallelMapStage : public Stage {
 public:
  ParallelMapStage(SourcePtr input, ElementFn fn, int64_t calls, uint64_t epoch)
      : input_(std::move(input)),
        fn_(std::move(fn)),
        calls_(static_cast<size_t>(calls)),
        stage_(input_->Start(epoch)),
        threads_("map", static_cast<int>(std::min(calls, kMaxThreads))) {}

  StatusOr<bool> Next(Element* element) override {
    while (stage_ != nullptr && under_way_.size() < calls_) {
      Element next;
      StatusOr<bool> more = stage_->Next(&next);
      if (!more.ok() || !*more) {
        end_ = more.status();
        stage_ = nullptr;
        break;
      }
      Materialize(input_->table(), &next);
      auto call = std::make_shared<Call>();
      call->tensors = std::move(next.tensors);
      under_way_.push_back(call);
      threads_.Schedule([this, call] {
        call->status = CatchExceptions([&] { return fn_(&call->tensors); });
        call->done.Notify();
      });
    }
    if (under_way_.empty()) {
      if (!end_.ok()) return std::exchange(end_, absl::OkStatus());
      return false;
    }
    const std::shared_ptr<Call> first = std::move(under_way_.front());
    under_way_.pop_front();
    first->done.Wait();
    MR_RETURN_IF_ERROR(std::move(first->status));
    element->row = -1;
    element->tensors = std::move(first->tensors);
    return true;
  }

  bool Ready() const override { return !under_way_.empty() && under_way_.front()->done.HasBeenNotified(); }

 private:
  struct Call {
    std::vector<Tensor> tensors;
    Status status;
    Notification done;
  };

  const SourcePtr input_;
  const ElementFn fn_;
  const size_t calls_;
  std::unique_ptr<Stage> stage_;  // null once the input has ended
  Status end_;
  std::deque<std::shared_ptr<Call>> under_way_;
  ThreadPool threads_;  // last member, so that it is joined before the others are destroyed
};

class ParallelMapSource : public Source {
 public:
  ParallelMapSource(SourcePtr input, ElementFn fn, int64_t calls)
      : Source(*input, NewElements()), input_(std::move(input)), fn_(std::move(fn)), calls_(calls) {}
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<ParallelMapStage>(input_, fn_, calls_, epoch);
  }
  bool waits_itself() const override { return true; }

 private:
  const SourcePtr input_;
  const ElementFn fn_;
  const int64_t calls_;
};

}  // namespace

SourcePtr NewParallelMap(SourcePtr input, ElementFn fn, int64_t calls) {
  return std::make_shared<ParallelMapSource>(std::move(input), std::move(fn), calls);
}

}  // namespace data_internal
}  // namespace millrace
