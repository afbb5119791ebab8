#include <cstring>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

class AllToAll final : public Algorithm {
 public:
  AllToAll(Place place, Workspace work, const char* from, int64_t count)
      : place_(place), work_(work), from_(from), count_(count) {}

  std::vector<int> destinations() const override {
    std::vector<int> ranks;
    for (int distance = 1; distance < place_.size; ++distance) ranks.push_back(At(distance));
    return ranks;
  }
  std::vector<int> sources() const override { return destinations(); }
  int awaited() const override { return distance_ < place_.size ? At(-distance_) : -1; }

  Status Start(Exchange& exchange) override {
    const size_t block = static_cast<size_t>(count_) * SizeOf(work_.dtype);
    if (block > 0) std::memcpy(work_.data + place_.rank * block, from_ + place_.rank * block, block);
    // Each to another rank at first, so that no rank gets all messages at once.
    for (int distance = 1; distance < place_.size; ++distance)
      exchange.Send(At(distance), {from_ + At(distance) * block, block});
    return absl::OkStatus();
  }
  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    const int64_t first = At(-distance_) * count_;
    MR_RETURN_IF_ERROR(work_.Put(first, first + count_, message));
    ++distance_;
    return absl::OkStatus();
  }

 private:
  int At(int distance) const { return (place_.rank + distance + place_.size) % place_.size; }

  const Place place_;
  const Workspace work_;
  const char* const from_;
  const int64_t count_;
  int distance_ = 1;  // of the rank that is waited for
};

}  // namespace

std::unique_ptr<Algorithm> NewAllToAll(Place place, Workspace work, const char* from, int64_t count) {
  return std::make_unique<AllToAll>(place, work, from, count);
}

}  // namespace millrace::collective
