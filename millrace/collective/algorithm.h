// The interface of algorithms: how the data of one operation travels between the ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/collective/lent_memory.h"
#include "millrace/collective/operation.h"
#include "millrace/net/bytes.h"

namespace millrace::collective {

// What an algorithm sends with. Used by one thread at a time.
class Exchange {
 public:
  // Sends bytes of the operation's own memory, which stay unchanged until the receiver has used them: until the
  // operation ends, or until the receiver has sent something that it computed from them. Small ones are copied.
  virtual void Send(int to, absl::string_view bytes) = 0;
  // Sends memory that the message owns.
  virtual void SendOwned(int to, net::Bytes bytes) = 0;
  // Memory for `size` bytes that `readers` read in place, for what they are sent (Send) of it until the operation ends
  // on this rank; unlike the operation's own memory it may then be gone. Null if there is none: send the operation's.
  virtual char* Stage(size_t size, absl::Span<const int> readers) = 0;

 protected:
  ~Exchange() = default;
};

// A message of another rank: in this process, in memory that both see, or still in the memory of the sender.
class Incoming {
 public:
  // `bytes` must outlive this.
  explicit Incoming(const net::Bytes& bytes) : bytes_(&bytes), size_(bytes.size()) {}
  Incoming(std::shared_ptr<const LentMemory> memory, uint64_t address, size_t size)
      : memory_(std::move(memory)), address_(address), size_(size) {}

  // In place; must outlive this.
  explicit Incoming(absl::string_view shared) : shared_(shared.data()), size_(shared.size()) {}

  size_t size() const { return size_; }
  // Copies all of it to `to`. An error if the sender is gone.
  Status CopyTo(char* to) const;
  // Calls `use` with all of it in order, in blocks that are aligned for every type and end between elements.
  Status ForBlocks(absl::FunctionRef<void(size_t offset, const char* data, size_t size)> use) const;

 private:
  const net::Bytes* bytes_ = nullptr;  // null if it is in the sender's memory, or in place
  const char* shared_ = nullptr;
  const std::shared_ptr<const LentMemory> memory_ = nullptr;
  const uint64_t address_ = 0;
  const size_t size_;
};

// One rank's part in one operation, as a sequence of messages that it waits for, one after another. The sequence does
// not depend on timing, so neither does the result. Used by one thread at a time.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // The ranks that it sends to, and those that it receives from; constant, without duplicates and without itself.
  virtual std::vector<int> destinations() const = 0;
  virtual std::vector<int> sources() const = 0;
  virtual Status Start(Exchange& exchange) = 0;
  // The rank whose message it waits for; negative if the operation is complete on this rank. Valid after Start.
  virtual int awaited() const = 0;
  // The next message of the awaited rank. An error if it is not what that rank should send at this point.
  virtual Status OnMessage(const Incoming& message, Exchange& exchange) = 0;
};

// This rank among the others of its group.
struct Place {
  int rank = 0;
  int size = 1;
};

// The elements that an operation works on, in place.
struct Workspace {
  char* data = nullptr;
  DType dtype = DType::kInvalid;
  Reduction reduction = Reduction::kSum;
  int64_t mean_of = 0;  // what kMean divides by; 0: the number of ranks of the algorithm

  absl::string_view bytes(int64_t first, int64_t last) const {
    const size_t size = SizeOf(dtype);
    return {data + static_cast<size_t>(first) * size, static_cast<size_t>(last - first) * size};
  }
  // Copies the message to the elements. INVALID_ARGUMENT if it has another size.
  Status Put(int64_t first, int64_t last, const Incoming& message) const;
  // Combines the elements with those of the message, which are the left operand if `message_first`.
  Status Combine(int64_t first, int64_t last, const Incoming& message, bool message_first) const;
  // Combine and Finish; the result is also written to `copy`.
  Status Complete(int64_t first, int64_t last, const Incoming& message, int ranks, char* copy) const;
  // The elements have been combined over all ranks: divides them for kMean.
  void Finish(int64_t first, int64_t last, int ranks) const;
};

// Ring: rank r receives from r - 1 and sends to r + 1. The elements are divided into one segment for each rank
// (`bounds` has the first element of each, and the end). To reduce, segment j travels from rank j + 1 once around to
// rank j, which then has ((x[j+1] + x[j+2]) + ...) + x[j]; to gather, it travels from rank j once around. Segments
// travel in chunks, and a chunk is sent on as soon as it has been combined: transfers and sums overlap.
struct RingOptions {
  bool reduces = true;
  bool gathers = true;
  size_t chunk_bytes = size_t{512} << 10;
};
std::unique_ptr<Algorithm> NewRing(Place place, Workspace work, std::vector<int64_t> bounds, RingOptions options);

// Recursive halving and doubling: 2 log2(size) messages for each rank. Beyond the largest power of two, p, of `size`
// ranks, the first 2 (size - p) ranks work in pairs: the even one hands its elements to the odd one, and gets the
// result from it in the end. The sum is a binary tree: pairs first, then ranks at distance p/2, p/4, ... 1, with the
// lower rank as the left operand.
std::unique_ptr<Algorithm> NewHalvingDoubling(Place place, Workspace work, int64_t count);

// Recursive doubling: log2(size) messages for each rank, each with all elements, so for few elements. Pairs beyond a
// power of two work as above. The sum is a binary tree: pairs first, then ranks at distance 1, 2, 4, ..., with the
// lower rank as the left operand.
std::unique_ptr<Algorithm> NewDoubling(Place place, Workspace work, int64_t count);

// Binomial tree: sums travel to rank 0, the result travels back. Rank r adds the sums of ranks r + 1, r + 2, r + 4, ...
// in this order. Without elements it is a barrier.
std::unique_ptr<Algorithm> NewTreeAllReduce(Place place, Workspace work, int64_t count);

// Binomial tree from `root`, in chunks.
std::unique_ptr<Algorithm> NewTreeBroadcast(Place place, Workspace work, int64_t count, int root, size_t chunk_bytes);

// Full exchange: every rank sends all of its elements to each other rank, which adds them itself: one message to each,
// and nobody waits twice. For few elements and few ranks of one host. The sum is x[0] + x[1] + x[2] + ..., from the
// left.
std::unique_ptr<Algorithm> NewFullExchange(Place place, Workspace work, int64_t count);

// Direct exchange: the elements are divided into one segment for each rank (`bounds`, as for the ring), which gets it
// from all others, adds, and gives the result to all others. Rank j computes ((x[j] + x[j+1]) + x[j+2]) + ... in
// segment j. Ranks that read each other's memory do so once for each element and result, without waiting for one rank
// after another as in a ring.
struct DirectOptions {
  static constexpr int kAll = -1;
  int root = kAll;  // the rank that gets the results; the others then have undefined elements outside their segment
  size_t chunk_bytes = size_t{512} << 10;
  // So many chunks of a segment are added before the first results of the others are taken, and so on in turn: what
  // was just added is taken from a cache. Ranks may be apart by so much without waiting.
  int ahead = 4;
};
std::unique_ptr<Algorithm> NewDirect(Place place, Workspace work, std::vector<int64_t> bounds, DirectOptions options);

// Algorithms of some of the ranks, one after another: rank i of a stage is `ranks[i]` of the group. Two ranks have the
// stages in which both take part in the same order.
struct Stage {
  std::unique_ptr<Algorithm> algorithm;
  std::vector<int> ranks;
};
std::unique_ptr<Algorithm> NewStages(std::vector<Stage> stages);

// Hierarchy: the ranks of each host add their elements (direct exchange), whose first rank gets the sum; these ranks
// reduce across hosts; then each gives the result to those of its host. `hosts` has the ranks of each host, ascending.
struct HierarchyOptions {
  size_t small_bytes = 0;  // up to this many, the first rank of a host adds the elements of all
  size_t chunk_bytes = size_t{512} << 10;
  int ahead = 4;  // as in DirectOptions
  // The all-reduce between the first ranks of all hosts.
  absl::FunctionRef<std::unique_ptr<Algorithm>(Place place, Workspace work)> across;
};
std::unique_ptr<Algorithm> NewHierarchy(Place place, Workspace work, int64_t count,
                                        const std::vector<std::vector<int>>& hosts, const HierarchyOptions& options);

// Every rank sends `count` elements to each other rank: those at rank * count of `from` go to that rank, and those of
// rank r arrive at r * count of the workspace.
std::unique_ptr<Algorithm> NewAllToAll(Place place, Workspace work, const char* from, int64_t count);

// The first elements of `parts` nearly equal parts of `count` elements, and `count`.
std::vector<int64_t> EvenBounds(int64_t count, int parts);

}  // namespace millrace::collective
