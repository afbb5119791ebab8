#include <bit>
#include <utility>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

class HalvingDoubling final : public Algorithm {
 public:
  HalvingDoubling(Place place, Workspace work, int64_t count)
      : place_(place), work_(work), count_(count), high_(count) {
    // The ranks that take part in the halving, and those that have a partner which does not.
    power_ = static_cast<int>(std::bit_floor(static_cast<unsigned>(place.size)));
    const int pairs = place.size - power_;
    const bool paired = place.rank < 2 * pairs;
    outer_ = paired && place.rank % 2 == 0;
    partner_ = paired ? place.rank ^ 1 : -1;
    virtual_rank_ = paired ? place.rank / 2 : place.rank - pairs;
    pairs_ = pairs;
  }

  std::vector<int> destinations() const override {
    std::vector<int> ranks;
    if (partner_ >= 0) ranks.push_back(partner_);
    for (int mask = 1; !outer_ && mask < power_; mask *= 2) ranks.push_back(RealRank(virtual_rank_ ^ mask));
    return ranks;
  }
  std::vector<int> sources() const override { return destinations(); }
  int awaited() const override { return awaited_; }

  Status Start(Exchange& exchange) override {
    if (place_.size == 1) return absl::OkStatus();
    if (outer_) {
      phase_ = Phase::kHandOut;
      awaited_ = partner_;
      exchange.Send(partner_, work_.bytes(0, count_));
    } else if (partner_ >= 0) {
      phase_ = Phase::kTakeIn;
      awaited_ = partner_;
    } else {
      BeginHalving(exchange);
    }
    return absl::OkStatus();
  }

  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    switch (phase_) {
      case Phase::kHandOut:
        MR_RETURN_IF_ERROR(work_.Put(0, count_, message));
        awaited_ = -1;
        return absl::OkStatus();
      case Phase::kTakeIn:
        MR_RETURN_IF_ERROR(work_.Combine(0, count_, message, /*message_first=*/true));
        BeginHalving(exchange);
        return absl::OkStatus();
      case Phase::kHalving:
        MR_RETURN_IF_ERROR(work_.Combine(low_, high_, message, /*message_first=*/(virtual_rank_ & mask_) != 0));
        mask_ /= 2;
        if (mask_ > 0) {
          Halve(exchange);
          return absl::OkStatus();
        }
        FinishReduction(work_.dtype, work_.reduction, const_cast<char*>(work_.bytes(low_, high_).data()), high_ - low_,
                        place_.size);
        phase_ = Phase::kDoubling;
        mask_ = 1;
        SendWindow(exchange);
        return absl::OkStatus();
      case Phase::kDoubling: {
        // The other half of the window that was halved with this partner.
        const auto [low, high] = windows_.back();
        windows_.pop_back();
        if ((virtual_rank_ & mask_) == 0) {
          MR_RETURN_IF_ERROR(work_.Put(high_, high, message));
        } else {
          MR_RETURN_IF_ERROR(work_.Put(low, low_, message));
        }
        low_ = low;
        high_ = high;
        mask_ *= 2;
        if (mask_ < power_) {
          SendWindow(exchange);
          return absl::OkStatus();
        }
        awaited_ = -1;
        if (partner_ >= 0) exchange.Send(partner_, work_.bytes(0, count_));
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

 private:
  enum class Phase { kHandOut, kTakeIn, kHalving, kDoubling };

  int RealRank(int virtual_rank) const { return virtual_rank < pairs_ ? 2 * virtual_rank + 1 : virtual_rank + pairs_; }

  void BeginHalving(Exchange& exchange) {
    phase_ = Phase::kHalving;
    mask_ = power_ / 2;
    Halve(exchange);
  }

  // Gives one half of the window to the partner and keeps the other.
  void Halve(Exchange& exchange) {
    awaited_ = RealRank(virtual_rank_ ^ mask_);
    windows_.emplace_back(low_, high_);
    const int64_t middle = low_ + (high_ - low_) / 2;
    if ((virtual_rank_ & mask_) != 0) {
      exchange.Send(awaited_, work_.bytes(low_, middle));
      low_ = middle;
    } else {
      exchange.Send(awaited_, work_.bytes(middle, high_));
      high_ = middle;
    }
  }

  void SendWindow(Exchange& exchange) {
    awaited_ = RealRank(virtual_rank_ ^ mask_);
    exchange.Send(awaited_, work_.bytes(low_, high_));
  }

  const Place place_;
  const Workspace work_;
  const int64_t count_;
  int power_ = 1;
  int pairs_ = 0;
  bool outer_ = false;
  int partner_ = -1;  // of the pair; negative if there is none
  int virtual_rank_ = 0;
  Phase phase_ = Phase::kHalving;
  int awaited_ = -1;
  int mask_ = 0;
  int64_t low_ = 0;  // the window whose sums this rank has
  int64_t high_;
  std::vector<std::pair<int64_t, int64_t>> windows_;  // before each halving
};

}  // namespace

std::unique_ptr<Algorithm> NewHalvingDoubling(Place place, Workspace work, int64_t count) {
  return std::make_unique<HalvingDoubling>(place, work, count);
}

}  // namespace millrace::collective
