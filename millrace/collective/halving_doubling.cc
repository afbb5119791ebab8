#include <bit>
#include <utility>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

// The ranks beyond the largest power of two: the first ones work in pairs, of which the odd one takes part in the
// exchange, under a virtual rank, and the even one does not.
struct Pairing {
  explicit Pairing(Place place) {
    power = static_cast<int>(std::bit_floor(static_cast<unsigned>(place.size)));
    pairs = place.size - power;
    const bool paired = place.rank < 2 * pairs;
    outer = paired && place.rank % 2 == 0;
    partner = paired ? place.rank ^ 1 : -1;
    virtual_rank = paired ? place.rank / 2 : place.rank - pairs;
  }
  int RealRank(int rank) const { return rank < pairs ? 2 * rank + 1 : rank + pairs; }
  // All ranks that this one exchanges messages with.
  std::vector<int> Ranks() const {
    std::vector<int> ranks;
    if (partner >= 0) ranks.push_back(partner);
    for (int mask = 1; !outer && mask < power; mask *= 2) ranks.push_back(RealRank(virtual_rank ^ mask));
    return ranks;
  }
  int power = 1;
  int pairs = 0;
  bool outer = false;
  int partner = -1;  // negative if there is none
  int virtual_rank = 0;
};

class Doubling final : public Algorithm {
 public:
  Doubling(Place place, Workspace work, int64_t count) : place_(place), pairing_(place), work_(work), count_(count) {}

  std::vector<int> destinations() const override { return pairing_.Ranks(); }
  std::vector<int> sources() const override { return pairing_.Ranks(); }
  int awaited() const override { return awaited_; }

  Status Start(Exchange& exchange) override {
    if (place_.size == 1) return absl::OkStatus();
    if (pairing_.partner < 0) return Next(1, exchange);
    awaited_ = pairing_.partner;
    return pairing_.outer ? SendAll(pairing_.partner, exchange) : absl::OkStatus();
  }

  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    if (pairing_.outer) {
      awaited_ = -1;
      return work_.Put(0, count_, message);
    }
    const bool message_first = mask_ == 0 || (pairing_.virtual_rank & mask_) != 0;
    MR_RETURN_IF_ERROR(work_.Combine(0, count_, message, message_first));
    return Next(mask_ == 0 ? 1 : 2 * mask_, exchange);
  }

 private:
  Status Next(int mask, Exchange& exchange) {
    mask_ = mask;
    if (mask < pairing_.power) {
      awaited_ = pairing_.RealRank(pairing_.virtual_rank ^ mask);
      return SendAll(awaited_, exchange);
    }
    awaited_ = -1;
    work_.Finish(0, count_, place_.size);
    return pairing_.partner >= 0 ? SendAll(pairing_.partner, exchange) : absl::OkStatus();
  }
  // A copy: the elements change before the receiver answers.
  Status SendAll(int to, Exchange& exchange) {
    exchange.SendOwned(to, net::Bytes::Of(std::string(work_.bytes(0, count_))));
    return absl::OkStatus();
  }

  const Place place_;
  const Pairing pairing_;
  const Workspace work_;
  const int64_t count_;
  int awaited_ = -1;
  int mask_ = 0;  // the distance of the virtual rank that is waited for; 0: the partner
};

class HalvingDoubling final : public Algorithm {
 public:
  HalvingDoubling(Place place, Workspace work, int64_t count)
      : place_(place), pairing_(place), work_(work), count_(count), high_(count) {}

  std::vector<int> destinations() const override { return pairing_.Ranks(); }
  std::vector<int> sources() const override { return pairing_.Ranks(); }
  int awaited() const override { return awaited_; }

  Status Start(Exchange& exchange) override {
    if (place_.size == 1) return absl::OkStatus();
    if (pairing_.outer) {
      phase_ = Phase::kHandOut;
      awaited_ = pairing_.partner;
      exchange.Send(pairing_.partner, work_.bytes(0, count_));
    } else if (pairing_.partner >= 0) {
      phase_ = Phase::kTakeIn;
      awaited_ = pairing_.partner;
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
        MR_RETURN_IF_ERROR(work_.Combine(low_, high_, message, /*message_first=*/(pairing_.virtual_rank & mask_) != 0));
        mask_ /= 2;
        if (mask_ > 0) {
          Halve(exchange);
          return absl::OkStatus();
        }
        work_.Finish(low_, high_, place_.size);
        phase_ = Phase::kDoubling;
        mask_ = 1;
        SendWindow(exchange);
        return absl::OkStatus();
      case Phase::kDoubling: {
        // The other half of the window that was halved with this partner.
        const auto [low, high] = windows_.back();
        windows_.pop_back();
        if ((pairing_.virtual_rank & mask_) == 0) {
          MR_RETURN_IF_ERROR(work_.Put(high_, high, message));
        } else {
          MR_RETURN_IF_ERROR(work_.Put(low, low_, message));
        }
        low_ = low;
        high_ = high;
        mask_ *= 2;
        if (mask_ < pairing_.power) {
          SendWindow(exchange);
          return absl::OkStatus();
        }
        awaited_ = -1;
        if (pairing_.partner >= 0) exchange.Send(pairing_.partner, work_.bytes(0, count_));
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

 private:
  enum class Phase { kHandOut, kTakeIn, kHalving, kDoubling };

  void BeginHalving(Exchange& exchange) {
    phase_ = Phase::kHalving;
    mask_ = pairing_.power / 2;
    Halve(exchange);
  }

  // Gives one half of the window to the partner and keeps the other.
  void Halve(Exchange& exchange) {
    awaited_ = pairing_.RealRank(pairing_.virtual_rank ^ mask_);
    windows_.emplace_back(low_, high_);
    const int64_t middle = low_ + (high_ - low_) / 2;
    if ((pairing_.virtual_rank & mask_) != 0) {
      exchange.Send(awaited_, work_.bytes(low_, middle));
      low_ = middle;
    } else {
      exchange.Send(awaited_, work_.bytes(middle, high_));
      high_ = middle;
    }
  }

  void SendWindow(Exchange& exchange) {
    awaited_ = pairing_.RealRank(pairing_.virtual_rank ^ mask_);
    exchange.Send(awaited_, work_.bytes(low_, high_));
  }

  const Place place_;
  const Pairing pairing_;
  const Workspace work_;
  const int64_t count_;
  Phase phase_ = Phase::kHalving;
  int awaited_ = -1;
  int mask_ = 0;
  int64_t low_ = 0;  // the window whose sums this rank has
  int64_t high_;
  std::vector<std::pair<int64_t, int64_t>> windows_;  // before each halving
};

}  // namespace

std::unique_ptr<Algorithm> NewDoubling(Place place, Workspace work, int64_t count) {
  return std::make_unique<Doubling>(place, work, count);
}

std::unique_ptr<Algorithm> NewHalvingDoubling(Place place, Workspace work, int64_t count) {
  return std::make_unique<HalvingDoubling>(place, work, count);
}

}  // namespace millrace::collective
