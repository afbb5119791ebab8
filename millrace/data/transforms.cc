// Repeat, Shard, Take, Skip, Map and Filter.
#include <algorithm>
#include <utility>

#include "millrace/data/stage.h"

namespace millrace {
namespace data_internal {
namespace {

class RepeatStage : public Stage {
 public:
  RepeatStage(SourcePtr input, int64_t count, uint64_t epoch)
      : input_(std::move(input)), count_(count), first_epoch_(epoch) {}

  StatusOr<bool> Next(Element* element) override {
    for (;;) {
      if (stage_ == nullptr) {
        if (done_ == count_) return false;
        stage_ = input_->Start(first_epoch_ + static_cast<uint64_t>(done_));
        empty_ = true;
      }
      MR_ASSIGN_OR_RETURN(const bool more, stage_->Next(element));
      if (more) {
        empty_ = false;
        return true;
      }
      stage_ = nullptr;
      ++done_;
      // Repeating an empty input indefinitely would never return.
      if (empty_) {
        done_ = count_;
        return false;
      }
    }
  }

 private:
  const SourcePtr input_;
  const int64_t count_;
  const uint64_t first_epoch_;
  int64_t done_ = 0;
  bool empty_ = true;
  std::unique_ptr<Stage> stage_;
};

class RepeatSource : public Source {
 public:
  RepeatSource(SourcePtr input, int64_t count)
      : Source(*input, SameRows()), input_(std::move(input)), count_(count < 0 ? -1 : count) {
    set_endless(count_ < 0 || (endless() && count_ > 0));
    if (count_ == 0 || cardinality() == 0) {
      set_cardinality(0);
    } else if (count_ < 0) {
      set_cardinality(kInfiniteCardinality);
    } else if (int64_t total = 0; cardinality() > 0) {
      set_cardinality(__builtin_mul_overflow(cardinality(), count_, &total) ? kUnknownCardinality : total);
    }
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    // Epoch numbers of nested Repeats must not collide: a prime stride separates them.
    return std::make_unique<RepeatStage>(input_, count_, epoch * 1000003);
  }

 private:
  const SourcePtr input_;
  const int64_t count_;
};

// Passes the elements first, first + step and so on below `end`; end < 0 means no limit.
class StridedStage : public Stage {
 public:
  StridedStage(std::unique_ptr<Stage> input, int64_t first, int64_t step, int64_t end)
      : input_(std::move(input)), step_(step), end_(end), next_(first) {}

  StatusOr<bool> Next(Element* element) override {
    if (end_ >= 0 && next_ >= end_) return false;
    for (; position_ <= next_; ++position_) {
      MR_ASSIGN_OR_RETURN(const bool more, input_->Next(element));
      if (!more) return false;
    }
    next_ += step_;
    return true;
  }

 private:
  const std::unique_ptr<Stage> input_;
  const int64_t step_;
  const int64_t end_;
  int64_t position_ = 0;  // of the input's next element
  int64_t next_;          // of the next element to pass
};

class StridedSource : public Source {
 public:
  StridedSource(SourcePtr input, int64_t first, int64_t step, int64_t end)
      : Source(*input, SameRows()), input_(std::move(input)), first_(first), step_(step), end_(end) {
    if (end_ >= 0) set_endless(false);
    if (cardinality() == kUnknownCardinality || (cardinality() == kInfiniteCardinality && end_ < 0)) return;
    int64_t available = cardinality() == kInfiniteCardinality ? end_ : cardinality();
    if (end_ >= 0) available = std::min(available, end_);
    set_cardinality(available <= first_ ? 0 : (available - first_ + step_ - 1) / step_);
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<StridedStage>(input_->Start(epoch), first_, step_, end_);
  }

 private:
  const SourcePtr input_;
  const int64_t first_, step_, end_;
};

class MapSource : public Source {
 public:
  MapSource(SourcePtr input, ElementFn fn, bool waits)
      : Source(*input, NewElements()), input_(std::move(input)), fn_(std::move(fn)) {
    if (waits) set_waits(true);
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<MapStage>(ShareThis(), input_->Start(epoch));
  }

 private:
  class MapStage : public Stage {
   public:
    MapStage(std::shared_ptr<const MapSource> source, std::unique_ptr<Stage> input)
        : source_(std::move(source)), input_(std::move(input)) {}
    StatusOr<bool> Next(Element* element) override {
      MR_ASSIGN_OR_RETURN(const bool more, input_->Next(element));
      if (!more) return false;
      Materialize(source_->input_->table(), element);
      MR_RETURN_IF_ERROR(source_->fn_(&element->tensors));
      return true;
    }

   private:
    const std::shared_ptr<const MapSource> source_;
    const std::unique_ptr<Stage> input_;
  };
  std::shared_ptr<const MapSource> ShareThis() const {
    return std::static_pointer_cast<const MapSource>(shared_from_this());
  }

  const SourcePtr input_;
  const ElementFn fn_;
};

class FilterSource : public Source {
 public:
  FilterSource(SourcePtr input, FilterFn keep, bool waits)
      : Source(*input, SameRows()), input_(std::move(input)), keep_(std::move(keep)) {
    set_cardinality(kUnknownCardinality);
    if (waits) set_waits(true);
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<FilterStage>(std::static_pointer_cast<const FilterSource>(shared_from_this()),
                                         input_->Start(epoch));
  }

 private:
  class FilterStage : public Stage {
   public:
    FilterStage(std::shared_ptr<const FilterSource> source, std::unique_ptr<Stage> input)
        : source_(std::move(source)), input_(std::move(input)) {}
    StatusOr<bool> Next(Element* element) override {
      for (;;) {
        MR_ASSIGN_OR_RETURN(const bool more, input_->Next(element));
        if (!more) return false;
        Element seen = *element;
        Materialize(source_->table(), &seen);
        MR_ASSIGN_OR_RETURN(const bool keep, source_->keep_(seen.tensors));
        if (keep) return true;
      }
    }

   private:
    const std::shared_ptr<const FilterSource> source_;
    const std::unique_ptr<Stage> input_;
  };

  const SourcePtr input_;
  const FilterFn keep_;
};

}  // namespace

SourcePtr NewFilter(SourcePtr input, FilterFn keep, bool waits) {
  return std::make_shared<FilterSource>(std::move(input), std::move(keep), waits);
}
SourcePtr NewRepeat(SourcePtr input, int64_t count) { return std::make_shared<RepeatSource>(std::move(input), count); }
SourcePtr NewShard(SourcePtr input, int64_t n, int64_t i) {
  return std::make_shared<StridedSource>(std::move(input), i, n, -1);
}
SourcePtr NewTake(SourcePtr input, int64_t n) { return std::make_shared<StridedSource>(std::move(input), 0, 1, n); }
SourcePtr NewSkip(SourcePtr input, int64_t n) { return std::make_shared<StridedSource>(std::move(input), n, 1, -1); }
SourcePtr NewMap(SourcePtr input, ElementFn fn, bool waits) {
  return std::make_shared<MapSource>(std::move(input), std::move(fn), waits);
}

}  // namespace data_internal
}  // namespace millrace
