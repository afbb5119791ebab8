#include "millrace/collective/fixed_order.h"

#include <algorithm>
#include <map>
#include <utility>

#include "millrace/tensor/buffer.h"

namespace millrace::collective {
namespace {

class FixedOrder final : public Algorithm {
 public:
  FixedOrder(Place place, Workspace work, int64_t count, std::vector<int> owners, std::vector<ShardValue> values,
             FixedOrderOptions options)
      : place_(place), work_(work), size_(SizeOf(work.dtype)), owners_(std::move(owners)), values_(std::move(values)) {
    const bool one = static_cast<size_t>(count) * size_ <= options.one_segment_bytes;
    bounds_ = EvenBounds(count, one ? 1 : place.size);
    const int64_t bytes = (bounds_[1] - bounds_[0]) * static_cast<int64_t>(size_);
    const int64_t chunk = std::max<int64_t>(static_cast<int64_t>(options.chunk_bytes), 1);
    chunks_ = std::max<int64_t>((bytes + chunk - 1) / chunk, 1);
    for (int rank = 0; rank < place.size; ++rank) nodes_.push_back(LargestNodes(owners_, rank));
    for (int64_t c = 0; place.rank < segments() && c < chunks_; ++c) {
      for (int rank = 0; rank < place.size; ++rank) {
        for (const ShardRange node : nodes_[rank]) {
          if (rank != place.rank) due_.push_back({rank, place.rank, c, node});
        }
      }
    }
    if (place.rank < segments()) sums_due_ = static_cast<int64_t>(due_.size());
    for (int segment = 0; segment < segments(); ++segment) {
      for (int64_t c = 0; segment != place.rank && c < chunks_; ++c) due_.push_back({segment, segment, c, {}});
    }
  }

  std::vector<int> destinations() const override {
    std::vector<int> ranks;
    const bool completes = place_.rank < segments(), contributes = !nodes_[place_.rank].empty();
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank != place_.rank && (completes || (contributes && rank < segments()))) ranks.push_back(rank);
    }
    return ranks;
  }
  std::vector<int> sources() const override {
    std::vector<int> ranks;
    const bool completes = place_.rank < segments();
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank != place_.rank && (rank < segments() || (completes && !nodes_[rank].empty()))) ranks.push_back(rank);
    }
    return ranks;
  }
  int awaited() const override { return next_ < due_.size() ? due_[next_].rank : -1; }

  Status Start(Exchange& exchange) override {
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
      // Each to another rank at first, so that no rank gets all messages at once.
      for (int distance = 1; distance < place_.size; ++distance) {
        const int to = (place_.rank + distance) % place_.size;
        if (to >= segments()) continue;
        for (const ShardRange node : nodes_[place_.rank]) MR_RETURN_IF_ERROR(SendNode(to, chunk, node, exchange));
      }
    }
    if (place_.rank < segments() && sums_due_ == 0) {
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) MR_RETURN_IF_ERROR(Complete(chunk, exchange));
    }
    return absl::OkStatus();
  }

  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    const Due& due = due_[next_];
    const auto [first, last] = Chunk(due.segment, due.chunk);
    if (static_cast<int64_t>(next_) >= sums_due_) {
      MR_RETURN_IF_ERROR(work_.Put(first, last, message));
      ++next_;
      return absl::OkStatus();
    }
    if (message.size() != static_cast<size_t>(last - first) * size_)
      return InvalidArgument("a message of ", message.size(), " bytes came where ", (last - first) * size_,
                             " were due");
    RefPtr<Buffer> buffer = Allocator::Heap()->Allocate(std::max<size_t>(message.size(), 1));
    if (!buffer) return ResourceExhausted("there is no memory for ", message.size(), " bytes of partial sums");
    MR_RETURN_IF_ERROR(message.CopyTo(static_cast<char*>(buffer->data())));
    received_.emplace(due.node, std::move(buffer));
    ++next_;
    const bool whole = static_cast<int64_t>(next_) == sums_due_ || due_[next_].chunk != due.chunk;
    if (whole) {
      MR_RETURN_IF_ERROR(Complete(due.chunk, exchange));
      received_.clear();
    }
    return absl::OkStatus();
  }

 private:
  struct Due {
    int rank;
    int segment;
    int64_t chunk;
    ShardRange node;  // empty for a result
  };
  // Elements of a node: somebody's memory, or a buffer of its own.
  struct Elements {
    const char* data = nullptr;
    RefPtr<Buffer> own = nullptr;
  };

  int segments() const { return static_cast<int>(bounds_.size()) - 1; }
  std::pair<int64_t, int64_t> Chunk(int segment, int64_t chunk) const {
    const int64_t begin = bounds_[segment], length = bounds_[segment + 1] - begin;
    return {begin + length * chunk / chunks_, begin + length * (chunk + 1) / chunks_};
  }

  StatusOr<Elements> Evaluate(ShardRange node, int64_t first, int64_t last) {
    for (const ShardValue& value : values_) {
      if (value.shards == node)
        return Elements{static_cast<const char*>(value.data) + static_cast<size_t>(first) * size_};
    }
    if (const auto it = received_.find(node); it != received_.end())
      return Elements{static_cast<const char*>(it->second->data())};
    MR_ASSIGN_OR_RETURN(const Elements left, Evaluate(node.left(), first, last));
    MR_ASSIGN_OR_RETURN(const Elements right, Evaluate(node.right(), first, last));
    Elements sum;
    sum.own = left.own ? left.own : right.own;
    if (!sum.own) {
      const size_t bytes = static_cast<size_t>(last - first) * size_;
      sum.own = Allocator::Heap()->Allocate(std::max<size_t>(bytes, 1));
      if (!sum.own) return ResourceExhausted("there is no memory for ", bytes, " bytes of partial sums");
    }
    sum.data = static_cast<const char*>(sum.own->data());
    Reduce(work_.dtype, work_.reduction, left.data, right.data, sum.own->data(), last - first);
    return sum;
  }

  Status SendNode(int to, int64_t chunk, ShardRange node, Exchange& exchange) {
    const auto [first, last] = Chunk(to, chunk);
    const size_t bytes = static_cast<size_t>(last - first) * size_;
    MR_ASSIGN_OR_RETURN(const Elements elements, Evaluate(node, first, last));
    if (!elements.own) {
      exchange.Send(to, {elements.data, bytes});
      return absl::OkStatus();
    }
    net::Bytes message;
    message.Append({elements.data, bytes}, elements.own);
    exchange.SendOwned(to, std::move(message));
    return absl::OkStatus();
  }

  // All values of a chunk of this rank's segment are there: combines them and sends the result to all.
  Status Complete(int64_t chunk, Exchange& exchange) {
    const auto [first, last] = Chunk(place_.rank, chunk);
    const absl::string_view to = work_.bytes(first, last);
    MR_ASSIGN_OR_RETURN(const Elements sum, Evaluate({0, static_cast<int>(owners_.size())}, first, last));
    char* const out = work_.data + (to.data() - work_.data);
    std::copy_n(sum.data, to.size(), out);
    FinishReduction(work_.dtype, work_.reduction, out, last - first, static_cast<int64_t>(owners_.size()));
    for (int distance = 1; distance < place_.size; ++distance)
      exchange.Send((place_.rank + distance) % place_.size, to);
    return absl::OkStatus();
  }

  const Place place_;
  const Workspace work_;
  const size_t size_;
  const std::vector<int> owners_;
  const std::vector<ShardValue> values_;
  std::vector<int64_t> bounds_;  // of the segments; segment j is completed by rank j
  int64_t chunks_ = 1;
  std::vector<std::vector<ShardRange>> nodes_;  // by rank
  std::vector<Due> due_;                        // the messages in the order in which they are used
  int64_t sums_due_ = 0;                        // so many of them are nodes, the rest are results
  size_t next_ = 0;
  std::map<ShardRange, RefPtr<Buffer>> received_;  // of the chunk that is being completed
};

}  // namespace

std::unique_ptr<Algorithm> NewFixedOrder(Place place, Workspace work, int64_t count, std::vector<int> owners,
                                         std::vector<ShardValue> values, FixedOrderOptions options) {
  return std::make_unique<FixedOrder>(place, work, count, std::move(owners), std::move(values), options);
}

Status CheckShardValues(absl::Span<const ShardValue> values, absl::Span<const int> owners, int rank) {
  const int shards = static_cast<int>(owners.size());
  if (shards == 0) return InvalidArgument("there are no shards");
  std::vector<int> covered(shards, 0);
  for (const ShardValue& value : values) {
    if (!IsNode(value.shards, shards))
      return InvalidArgument("shards ", value.shards.first, " to ", value.shards.last - 1, " of ", shards,
                             " are no node of the tree in which shards are combined");
    for (int shard = value.shards.first; shard < value.shards.last; ++shard) ++covered[shard];
  }
  for (int shard = 0; shard < shards; ++shard) {
    const int wanted = owners[shard] == rank ? 1 : 0;
    if (covered[shard] != wanted)
      return InvalidArgument("rank ", rank, " has ", covered[shard], " values for shard ", shard,
                             ", which belongs to rank ", owners[shard]);
  }
  return absl::OkStatus();
}

}  // namespace millrace::collective
