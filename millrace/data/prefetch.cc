// Prefetch: a thread produces the next elements while the consumer processes the current one.
#include <deque>
#include <utility>

#include "millrace/base/exception_status.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/data/stage.h"

namespace millrace {
namespace data_internal {
namespace {

class PrefetchStage : public Stage {
 public:
  PrefetchStage(std::unique_ptr<Stage> input, int64_t limit)
      : input_(std::move(input)), limit_(static_cast<size_t>(limit)), thread_("prefetch", 1) {
    thread_.Schedule([this] { Produce(); });
  }
  ~PrefetchStage() override {
    MutexLock lock(&mu_);
    stop_ = true;
    changed_.SignalAll();
  }

  StatusOr<bool> Next(Element* element) override {
    MutexLock lock(&mu_);
    while (queue_.empty() && !ended_) changed_.Wait(&mu_);
    if (queue_.empty()) {
      if (!error_.ok()) return error_;
      return false;
    }
    *element = std::move(queue_.front());
    queue_.pop_front();
    changed_.SignalAll();
    return true;
  }

  bool Ready() const override {
    MutexLock lock(&mu_);
    return !queue_.empty() || ended_;
  }

 private:
  void Produce() {
    for (;;) {
      {
        MutexLock lock(&mu_);
        while (queue_.size() >= limit_ && !stop_) changed_.Wait(&mu_);
        if (stop_) return;
      }
      Element next;
      StatusOr<bool> more = CatchExceptions([&] { return input_->Next(&next); });
      MutexLock lock(&mu_);
      changed_.SignalAll();
      if (!more.ok() || !*more) {
        error_ = more.status();
        ended_ = true;
        return;
      }
      queue_.push_back(std::move(next));
    }
  }

  const std::unique_ptr<Stage> input_;  // used by the thread only
  const size_t limit_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Element> queue_ ABSL_GUARDED_BY(mu_);
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  Status error_ ABSL_GUARDED_BY(mu_);
  ThreadPool thread_;  // last member, so that it is joined before the others are destroyed
};

class PrefetchSource : public Source {
 public:
  PrefetchSource(SourcePtr input, int64_t n) : Source(*input, SameRows()), input_(std::move(input)), n_(n) {
    // Earlier stages wait on the prefetch thread, not on the consumer's.
    set_waits(false);
  }
  bool waits_itself() const override { return true; }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<PrefetchStage>(input_->Start(epoch), n_);
  }

 private:
  const SourcePtr input_;
  const int64_t n_;
};

}  // namespace

SourcePtr NewPrefetch(SourcePtr input, int64_t n) { return std::make_shared<PrefetchSource>(std::move(input), n); }

}  // namespace data_internal
}  // namespace millrace
