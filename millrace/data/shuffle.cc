// Shuffle: draws each element from a buffer of those that come next.
#include <limits>
#include <utility>

#include "millrace/base/philox.h"
#include "millrace/data/stage.h"

namespace millrace {
namespace data_internal {
namespace {

class ShuffleStage : public Stage {
 public:
  ShuffleStage(std::unique_ptr<Stage> input, ShuffleOptions options, uint64_t epoch)
      : input_(std::move(input)),
        capacity_(options.buffer_size > 0 ? static_cast<size_t>(options.buffer_size)
                                          : std::numeric_limits<size_t>::max()),
        random_(options.seed, epoch) {}

  StatusOr<bool> Next(Element* element) override {
    while (input_ != nullptr && buffer_.size() < capacity_) {
      Element next;
      MR_ASSIGN_OR_RETURN(const bool more, input_->Next(&next));
      if (more) {
        buffer_.push_back(std::move(next));
      } else {
        input_ = nullptr;
      }
    }
    if (buffer_.empty()) return false;
    Element& drawn = buffer_[Below(buffer_.size())];
    *element = std::move(drawn);
    drawn = std::move(buffer_.back());
    buffer_.pop_back();
    return true;
  }

 private:
  // A number from 0 to n - 1; its bias is below n / 2^64.
  size_t Below(size_t n) {
    if (used_ == 4) {
      group_ = random_();
      used_ = 0;
    }
    const uint64_t bits = static_cast<uint64_t>(group_[used_ + 1]) << 32 | group_[used_];
    used_ += 2;
    return static_cast<size_t>(static_cast<unsigned __int128>(bits) * n >> 64);
  }

  std::unique_ptr<Stage> input_;
  const size_t capacity_;
  Philox random_;
  Philox::Group group_{};
  int used_ = 4;
  std::vector<Element> buffer_;
};

class ShuffleSource : public Source {
 public:
  ShuffleSource(SourcePtr input, ShuffleOptions options)
      : Source(*input, SameRows()), input_(std::move(input)), options_(options) {}
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<ShuffleStage>(input_->Start(epoch), options_, epoch);
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
