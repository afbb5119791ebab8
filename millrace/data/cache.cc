// Cache: the first pass that reaches the end leaves its elements to later passes.
#include <utility>

#include "millrace/base/mutex.h"
#include "millrace/data/stage.h"

namespace millrace {
namespace data_internal {
namespace {

using Elements = std::vector<Element>;

// Shared by all passes of one source.
struct Kept {
  Mutex mu;
  std::shared_ptr<const Elements> all ABSL_GUARDED_BY(mu);
};

class RecordingStage : public Stage {
 public:
  RecordingStage(std::unique_ptr<Stage> input, std::shared_ptr<Kept> kept)
      : input_(std::move(input)), kept_(std::move(kept)) {}
  StatusOr<bool> Next(Element* element) override {
    MR_ASSIGN_OR_RETURN(const bool more, input_->Next(element));
    if (more) {
      seen_.push_back(*element);
      return true;
    }
    MutexLock lock(&kept_->mu);
    if (kept_->all == nullptr) kept_->all = std::make_shared<const Elements>(std::move(seen_));
    return false;
  }

 private:
  const std::unique_ptr<Stage> input_;
  const std::shared_ptr<Kept> kept_;
  Elements seen_;
};

class ReplayStage : public Stage {
 public:
  explicit ReplayStage(std::shared_ptr<const Elements> all) : all_(std::move(all)) {}
  StatusOr<bool> Next(Element* element) override {
    if (next_ == all_->size()) return false;
    *element = (*all_)[next_++];
    return true;
  }

 private:
  const std::shared_ptr<const Elements> all_;
  size_t next_ = 0;
};

class CacheSource : public Source {
 public:
  explicit CacheSource(SourcePtr input) : Source(*input, SameRows()), input_(std::move(input)) {}
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    MutexLock lock(&kept_->mu);
    if (kept_->all != nullptr) return std::make_unique<ReplayStage>(kept_->all);
    return std::make_unique<RecordingStage>(input_->Start(epoch), kept_);
  }

 private:
  const SourcePtr input_;
  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

}  // namespace

SourcePtr NewCache(SourcePtr input) { return std::make_shared<CacheSource>(std::move(input)); }

}  // namespace data_internal
}  // namespace millrace
