#include <algorithm>
#include <utility>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

// The parent and children of a rank in the binomial tree whose root is 0. Children are in ascending order.
struct TreePlace {
  explicit TreePlace(Place place) {
    for (int mask = 1; mask < place.size; mask *= 2) {
      if ((place.rank & mask) != 0) {
        parent = place.rank - mask;
        return;
      }
      if (place.rank + mask < place.size) children.push_back(place.rank + mask);
    }
  }
  int parent = -1;
  std::vector<int> children;
};

class TreeAllReduce final : public Algorithm {
 public:
  TreeAllReduce(Place place, Workspace work, int64_t count) : place_(place), tree_(place), work_(work), count_(count) {}

  std::vector<int> destinations() const override {
    std::vector<int> ranks = tree_.children;
    if (tree_.parent >= 0) ranks.push_back(tree_.parent);
    return ranks;
  }
  std::vector<int> sources() const override { return destinations(); }
  int awaited() const override { return awaited_; }
  Status Start(Exchange& exchange) override {
    Advance(exchange);
    return absl::OkStatus();
  }

  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    if (awaited_ == tree_.parent) {
      MR_RETURN_IF_ERROR(work_.Put(0, count_, message));
      SendResult(exchange);
      return absl::OkStatus();
    }
    MR_RETURN_IF_ERROR(work_.Combine(0, count_, message, /*message_first=*/false));
    ++heard_;
    Advance(exchange);
    return absl::OkStatus();
  }

 private:
  void Advance(Exchange& exchange) {
    if (heard_ < tree_.children.size()) {
      awaited_ = tree_.children[heard_];
    } else if (tree_.parent >= 0) {
      awaited_ = tree_.parent;
      exchange.Send(tree_.parent, Elements());
    } else {
      work_.Finish(0, count_, place_.size);
      SendResult(exchange);
    }
  }
  void SendResult(Exchange& exchange) {
    awaited_ = -1;
    // The child with the most descendants first.
    for (size_t i = tree_.children.size(); i > 0; --i) exchange.Send(tree_.children[i - 1], Elements());
  }
  absl::string_view Elements() const { return count_ == 0 ? absl::string_view() : work_.bytes(0, count_); }

  const Place place_;
  const TreePlace tree_;
  const Workspace work_;
  const int64_t count_;
  size_t heard_ = 0;  // children whose sums have been added
  int awaited_ = -1;
};

class TreeBroadcast final : public Algorithm {
 public:
  TreeBroadcast(Place place, Workspace work, int64_t count, int root, size_t chunk_bytes)
      : place_(place),
        tree_({.rank = (place.rank - root + place.size) % place.size, .size = place.size}),
        work_(work),
        count_(count),
        root_(root) {
    const int64_t bytes = count * static_cast<int64_t>(SizeOf(work.dtype));
    const int64_t chunk = std::max<int64_t>(static_cast<int64_t>(chunk_bytes), 1);
    chunks_ = std::max<int64_t>((bytes + chunk - 1) / chunk, 1);
  }

  std::vector<int> destinations() const override {
    std::vector<int> ranks;
    for (int child : tree_.children) ranks.push_back(RealRank(child));
    return ranks;
  }
  std::vector<int> sources() const override {
    if (tree_.parent < 0) return {};
    return {RealRank(tree_.parent)};
  }
  int awaited() const override { return tree_.parent >= 0 && received_ < chunks_ ? RealRank(tree_.parent) : -1; }

  Status Start(Exchange& exchange) override {
    for (int64_t chunk = 0; tree_.parent < 0 && chunk < chunks_; ++chunk) SendOn(chunk, exchange);
    return absl::OkStatus();
  }
  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    const auto [first, last] = Chunk(received_);
    MR_RETURN_IF_ERROR(work_.Put(first, last, message));
    SendOn(received_++, exchange);
    return absl::OkStatus();
  }

 private:
  int RealRank(int rank) const { return (rank + root_) % place_.size; }
  std::pair<int64_t, int64_t> Chunk(int64_t chunk) const {
    return {count_ * chunk / chunks_, count_ * (chunk + 1) / chunks_};
  }
  void SendOn(int64_t chunk, Exchange& exchange) const {
    const auto [first, last] = Chunk(chunk);
    for (size_t i = tree_.children.size(); i > 0; --i)
      exchange.Send(RealRank(tree_.children[i - 1]), work_.bytes(first, last));
  }

  const Place place_;
  const TreePlace tree_;  // in ranks counted from the root
  const Workspace work_;
  const int64_t count_;
  const int root_;
  int64_t chunks_ = 1;
  int64_t received_ = 0;
};

}  // namespace

std::unique_ptr<Algorithm> NewTreeAllReduce(Place place, Workspace work, int64_t count) {
  return std::make_unique<TreeAllReduce>(place, work, count);
}

std::unique_ptr<Algorithm> NewTreeBroadcast(Place place, Workspace work, int64_t count, int root, size_t chunk_bytes) {
  return std::make_unique<TreeBroadcast>(place, work, count, root, chunk_bytes);
}

}  // namespace millrace::collective
