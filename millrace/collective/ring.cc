#include <algorithm>
#include <utility>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

class Ring final : public Algorithm {
 public:
  Ring(Place place, Workspace work, std::vector<int64_t> bounds, RingOptions options)
      : place_(place), work_(work), bounds_(std::move(bounds)), reduces_(options.reduces) {
    const int64_t around = place.size - 1;
    steps_ = around * (options.reduces + options.gathers);
    int64_t longest = 0;
    for (int segment = 0; segment < place.size; ++segment)
      longest = std::max(longest, bounds_[segment + 1] - bounds_[segment]);
    const int64_t bytes = longest * static_cast<int64_t>(SizeOf(work.dtype));
    const int64_t chunk = std::max<int64_t>(static_cast<int64_t>(options.chunk_bytes), 1);
    chunks_ = std::max<int64_t>((bytes + chunk - 1) / chunk, 1);
  }

  std::vector<int> destinations() const override { return Neighbour(1); }
  std::vector<int> sources() const override { return Neighbour(-1); }
  int awaited() const override { return received_ < steps_ * chunks_ ? Mod(place_.rank - 1) : -1; }

  Status Start(Exchange& exchange) override {
    if (steps_ == 0) return absl::OkStatus();
    const int segment = Mod(reduces_ ? place_.rank - 1 : place_.rank);
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) Send(segment, chunk, exchange);
    return absl::OkStatus();
  }

  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    const int64_t step = received_ / chunks_, chunk = received_ % chunks_;
    const int64_t around = place_.size - 1;
    const bool reducing = reduces_ && step < around;
    const int64_t behind = reducing ? 2 + step : 1 + step - (reduces_ ? around : 0);
    const int segment = Mod(place_.rank - static_cast<int>(behind));
    const auto [first, last] = Chunk(segment, chunk);
    if (reducing) {
      MR_RETURN_IF_ERROR(work_.Combine(first, last, message, /*message_first=*/true));
      if (step == around - 1) work_.Finish(first, last, place_.size);
    } else {
      MR_RETURN_IF_ERROR(work_.Put(first, last, message));
    }
    ++received_;
    if (step + 1 < steps_) Send(segment, chunk, exchange);
    return absl::OkStatus();
  }

 private:
  int Mod(int rank) const { return ((rank % place_.size) + place_.size) % place_.size; }
  std::vector<int> Neighbour(int distance) const {
    if (steps_ == 0) return {};
    return {Mod(place_.rank + distance)};
  }
  std::pair<int64_t, int64_t> Chunk(int segment, int64_t chunk) const {
    const int64_t begin = bounds_[segment], length = bounds_[segment + 1] - begin;
    return {begin + length * chunk / chunks_, begin + length * (chunk + 1) / chunks_};
  }
  void Send(int segment, int64_t chunk, Exchange& exchange) const {
    const auto [first, last] = Chunk(segment, chunk);
    exchange.Send(Mod(place_.rank + 1), work_.bytes(first, last));
  }

  const Place place_;
  const Workspace work_;
  const std::vector<int64_t> bounds_;
  const bool reduces_;
  int64_t steps_ = 0;
  int64_t chunks_ = 1;  // of each segment
  int64_t received_ = 0;
};

}  // namespace

std::unique_ptr<Algorithm> NewRing(Place place, Workspace work, std::vector<int64_t> bounds, RingOptions options) {
  return std::make_unique<Ring>(place, work, std::move(bounds), options);
}

}  // namespace millrace::collective
