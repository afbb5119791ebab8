#include <algorithm>
#include <utility>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

// The elements of all ranks are read by all: one message to each other rank, and no second round.
class FullExchange final : public Algorithm {
 public:
  FullExchange(Place place, Workspace work, int64_t count) : place_(place), work_(work), count_(count) {
    if (place.size > 1) awaited_ = place.rank == 0 ? 1 : 0;
  }

  std::vector<int> destinations() const override { return Others(); }
  std::vector<int> sources() const override { return Others(); }
  int awaited() const override { return awaited_; }

  Status Start(Exchange& exchange) override {
    if (place_.size == 1) return absl::OkStatus();
    const absl::string_view elements = work_.bytes(0, count_);
    // A copy, which all messages share: the elements change before the others have read them.
    const net::Bytes copy = net::Bytes::Of(std::string(elements));
    for (int distance = 1; distance < place_.size; ++distance)
      exchange.SendOwned((place_.rank + distance) % place_.size, copy);
    if (place_.rank > 0) own_ = copy;
    return absl::OkStatus();
  }

  Status OnMessage(const Incoming& message, Exchange& /*exchange*/) override {
    if (awaited_ == 0) {
      MR_RETURN_IF_ERROR(work_.Put(0, count_, message));
    } else {
      MR_RETURN_IF_ERROR(work_.Combine(0, count_, message, /*message_first=*/false));
    }
    if (++awaited_ == place_.rank) {
      MR_RETURN_IF_ERROR(work_.Combine(0, count_, Incoming(own_), /*message_first=*/false));
      ++awaited_;
    }
    if (awaited_ < place_.size) return absl::OkStatus();
    awaited_ = -1;
    work_.Finish(0, count_, place_.size);
    return absl::OkStatus();
  }

 private:
  std::vector<int> Others() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank != place_.rank) ranks.push_back(rank);
    }
    return ranks;
  }

  const Place place_;
  const Workspace work_;
  const int64_t count_;
  int awaited_ = -1;
  net::Bytes own_;  // this rank's elements, until their turn comes
};

class Direct final : public Algorithm {
 public:
  Direct(Place place, Workspace work, std::vector<int64_t> bounds, DirectOptions options)
      : place_(place), work_(work), bounds_(std::move(bounds)), root_(options.root) {
    int64_t longest = 0;
    for (int segment = 0; segment < place.size; ++segment)
      longest = std::max(longest, bounds_[segment + 1] - bounds_[segment]);
    const int64_t bytes = longest * static_cast<int64_t>(SizeOf(work.dtype));
    const int64_t chunk = std::max<int64_t>(static_cast<int64_t>(options.chunk_bytes), 1);
    chunks_ = std::max<int64_t>((bytes + chunk - 1) / chunk, 1);
    ahead_ = std::max<int64_t>(options.ahead, 1);
    // The order in which messages are used: the sums of the first chunks, then in turn the results of a chunk and the
    // sums of a later one. Each rank sends to another in the order in which that rank uses the messages.
    for (int64_t step = 0; step < chunks_ + ahead_; ++step) {
      for (int distance = 1; distance < place.size; ++distance) {
        const int rank = (place.rank + distance) % place.size;
        if (step >= ahead_ && Has(rank, step - ahead_) && ToGather(place.rank))
          due_.push_back({rank, rank, step - ahead_, /*sums=*/false});
      }
      for (int distance = 1; distance < place.size; ++distance) {
        const int rank = (place.rank + distance) % place.size;
        if (Has(place.rank, step)) due_.push_back({rank, place.rank, step, /*sums=*/true});
      }
    }
  }

  std::vector<int> destinations() const override { return Partners(/*sends=*/true); }
  std::vector<int> sources() const override { return Partners(/*sends=*/false); }
  int awaited() const override { return next_ < due_.size() ? due_[next_].rank : -1; }

  Status Start(Exchange& exchange) override {
    if (place_.size > 1) staged_ = exchange.Stage(work_.bytes(0, bounds_.back()).size(), destinations());
    for (int64_t chunk = 0; chunk < ahead_; ++chunk) SendSums(chunk, exchange);
    // A rank without a part of its own has nothing to complete, which would let the next chunks follow.
    if (place_.size > 1) CompleteEmpty(0, exchange);
    return absl::OkStatus();
  }

  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    const Due& due = due_[next_];
    const auto [first, last] = Chunk(due.segment, due.chunk);
    if (!due.sums) {
      MR_RETURN_IF_ERROR(work_.Put(first, last, message));
      ++next_;
      return absl::OkStatus();
    }
    const int last_rank = (place_.rank + place_.size - 1) % place_.size;
    if (due.rank == last_rank && staged_ != nullptr) {
      MR_RETURN_IF_ERROR(work_.Complete(first, last, message, place_.size, Staged(first)));
    } else {
      MR_RETURN_IF_ERROR(work_.Combine(first, last, message, /*message_first=*/false));
      if (due.rank == last_rank) work_.Finish(first, last, place_.size);
    }
    ++next_;
    if (due.rank == last_rank) {
      SendResult(due.chunk, exchange);
      CompleteEmpty(due.chunk + 1, exchange);
    }
    return absl::OkStatus();
  }

 private:
  struct Due {
    int rank;
    int segment;
    int64_t chunk;
    bool sums;  // to be added; otherwise a result
  };

  std::pair<int64_t, int64_t> Chunk(int segment, int64_t chunk) const {
    const int64_t begin = bounds_[segment], length = bounds_[segment + 1] - begin;
    return {begin + length * chunk / chunks_, begin + length * (chunk + 1) / chunks_};
  }
  bool Has(int segment, int64_t chunk) const {
    if (chunk >= chunks_) return false;
    const auto [first, last] = Chunk(segment, chunk);
    return first < last;
  }
  bool ToGather(int rank) const { return root_ == DirectOptions::kAll || root_ == rank; }
  bool Empty(int segment) const { return bounds_[segment] == bounds_[segment + 1]; }

  std::vector<int> Partners(bool sends) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank == place_.rank) continue;
      const int from = sends ? place_.rank : rank, to = sends ? rank : place_.rank;
      // Sums for the receiver's segment, or the result of the sender's.
      if (!Empty(to) || (!Empty(from) && ToGather(to))) ranks.push_back(rank);
    }
    return ranks;
  }

  char* Staged(int64_t first) const { return staged_ + static_cast<size_t>(first) * SizeOf(work_.dtype); }

  // This rank's elements of a chunk of each other rank's segment.
  void SendSums(int64_t chunk, Exchange& exchange) const {
    for (int distance = 1; distance < place_.size; ++distance) {
      const int to = (place_.rank + distance) % place_.size;
      if (!Has(to, chunk)) continue;
      const auto [first, last] = Chunk(to, chunk);
      absl::string_view bytes = work_.bytes(first, last);
      if (staged_ != nullptr) {
        std::copy_n(bytes.data(), bytes.size(), Staged(first));
        bytes = {Staged(first), bytes.size()};
      }
      exchange.Send(to, bytes);
    }
  }
  // A chunk of this rank's segment is complete; a later one follows.
  void SendResult(int64_t chunk, Exchange& exchange) const {
    for (int distance = 1; distance < place_.size; ++distance) {
      const int to = (place_.rank + distance) % place_.size;
      if (!Has(place_.rank, chunk) || !ToGather(to)) continue;
      const auto [first, last] = Chunk(place_.rank, chunk);
      const absl::string_view bytes = work_.bytes(first, last);
      exchange.Send(to, staged_ == nullptr ? bytes : absl::string_view(Staged(first), bytes.size()));
    }
    SendSums(chunk + ahead_, exchange);
  }
  // The chunks from `chunk` on of which this rank's segment has no elements are complete.
  void CompleteEmpty(int64_t chunk, Exchange& exchange) const {
    for (; chunk < chunks_ && !Has(place_.rank, chunk); ++chunk) SendResult(chunk, exchange);
  }

  const Place place_;
  const Workspace work_;
  const std::vector<int64_t> bounds_;
  const int root_;
  int64_t chunks_ = 1;
  int64_t ahead_ = 1;
  std::vector<Due> due_;
  size_t next_ = 0;
  // Elements as the others see them, if not in the workspace: those of their segments, and results of this rank's.
  char* staged_ = nullptr;
};

}  // namespace

std::unique_ptr<Algorithm> NewFullExchange(Place place, Workspace work, int64_t count) {
  return std::make_unique<FullExchange>(place, work, count);
}

std::unique_ptr<Algorithm> NewDirect(Place place, Workspace work, std::vector<int64_t> bounds, DirectOptions options) {
  return std::make_unique<Direct>(place, work, std::move(bounds), options);
}

}  // namespace millrace::collective
