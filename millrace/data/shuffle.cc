// Shuffle: draws each element at random from a buffer of the next ones.
#include <limits>
#include <utility>

#include "millrace/base/philox.h"
#include "millrace/data/stage.h"

namespace millrace {
namespace data_internal {
namespace {

// The 32-bit numbers of a Philox stream, one at a time.
class Numbers {
 public:
  Numbers(uint64_t seed, uint64_t seed2) : random_(seed, seed2) {}
  uint32_t operator()() {
    if (used_ == 4) {
      group_ = random_();
      used_ = 0;
    }
    return group_[used_++];
  }
  void Skip(uint64_t numbers) {
    random_.Skip(numbers / 4);
    used_ = 4;
    for (uint64_t i = 0; i < numbers % 4; ++i) (*this)();
  }

 private:
  Philox random_;
  Philox::Group group_{};
  int used_ = 4;
};

// The seeds of one epoch: the given ones, or the epoch's pair in the random stream that they seed.
std::pair<uint64_t, uint64_t> SeedsOf(const ShuffleOptions& options, uint64_t epoch) {
  if (!options.reshuffle_each_iteration) return {options.seed, options.seed2};
  Numbers seeds(options.seed, options.seed2);
  seeds.Skip(2 * epoch);
  const uint64_t first = seeds();
  return {first, seeds()};
}

// Elements are buffered in a ring. The drawn one is swapped with the oldest, which keeps the rest contiguous; this
// gives TensorFlow's order for the same seeds.
class ShuffleStage : public Stage {
 public:
  ShuffleStage(std::unique_ptr<Stage> input, int64_t buffer_size, std::pair<uint64_t, uint64_t> seeds)
      : input_(std::move(input)),
        capacity_(buffer_size > 0 ? static_cast<uint64_t>(buffer_size) : std::numeric_limits<uint64_t>::max()),
        random_(seeds.first, seeds.second) {}

  StatusOr<bool> Next(Element* element) override {
    while (input_ != nullptr && end_ - begin_ < capacity_) {
      Element next;
      MR_ASSIGN_OR_RETURN(const bool more, input_->Next(&next));
      if (!more) {
        input_ = nullptr;
      } else if (end_ < capacity_) {
        ring_.push_back(std::move(next));
        ++end_;
      } else {
        ring_[end_++ % capacity_] = std::move(next);
      }
    }
    if (begin_ == end_) return false;
    Element& drawn = ring_[(begin_ + random_() % (end_ - begin_)) % capacity_];
    *element = std::move(drawn);
    drawn = std::move(ring_[begin_++ % capacity_]);
    return true;
  }

 private:
  std::unique_ptr<Stage> input_;
  const uint64_t capacity_;
  Numbers random_;
  std::vector<Element> ring_;
  uint64_t begin_ = 0, end_ = 0;  // positions of the oldest and one past the newest element, not wrapped
};

class ShuffleSource : public Source {
 public:
  ShuffleSource(SourcePtr input, ShuffleOptions options)
      : Source(*input, SameRows()), input_(std::move(input)), options_(options) {}
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<ShuffleStage>(input_->Start(epoch), options_.buffer_size, SeedsOf(options_, epoch));
  }

 private:
  const SourcePtr input_;
  const ShuffleOptions options_;
};

}  // namespace

SourcePtr NewShuffle(SourcePtr input, ShuffleOptions options) {
  return std::make_shared<ShuffleSource>(std::move(input), options);
}

}  // namespace data_internal
}  // namespace millrace
