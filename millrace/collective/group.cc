#include "millrace/collective/group.h"

#include <numeric>
#include <utility>

#include "millrace/collective/group_core.h"

namespace millrace::collective {
namespace {

constexpr size_t kMostRanks = 1 << 16;
// With more ranks a tree, which has fewer messages in all, is used for few elements.
constexpr size_t kMostDoubling = 8;

// A hash that is the same in all processes.
template <typename T>
uint64_t LayoutHash(absl::Span<const T> numbers) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const T number : numbers) hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3;
  return hash;
}

Status CheckElements(const Elements& elements) {
  const size_t size = SizeOf(elements.dtype);
  if (!IsPlain(elements.dtype) || size == 0)
    return InvalidArgument("elements of type ", elements.dtype, " cannot be sent");
  if (elements.count < 0) return InvalidArgument("there cannot be ", elements.count, " elements");
  if (elements.count > 0 && elements.data == nullptr) return InvalidArgument("the elements have no memory");
  // Complex numbers are aligned as their parts are.
  const size_t alignment = IsComplex(elements.dtype) ? size / 2 : size;
  if (reinterpret_cast<uintptr_t>(elements.data) % alignment != 0)
    return InvalidArgument("the elements are not aligned for type ", elements.dtype);
  return absl::OkStatus();
}

// The all-reduce of ranks that have a host each.
AlgorithmKind ChooseAcross(const GroupOptions& group, size_t ranks, size_t bytes) {
  if (bytes <= group.small_bytes) return ranks <= kMostDoubling ? AlgorithmKind::kDoubling : AlgorithmKind::kTree;
  return bytes <= group.halving_bytes ? AlgorithmKind::kHalvingDoubling : AlgorithmKind::kRing;
}

AlgorithmKind Choose(const GroupCore& core, size_t bytes) {
  const size_t ranks = core.options().ranks.size(), hosts = core.hosts().size();
  if (hosts == ranks) return ChooseAcross(core.options(), ranks, bytes);
  if (hosts > 1) return AlgorithmKind::kHierarchy;
  return bytes <= core.options().small_bytes && ranks > kMostDoubling ? AlgorithmKind::kTree : AlgorithmKind::kDirect;
}

// Null if it is no algorithm of all-reduce.
std::unique_ptr<Algorithm> NewAllReduce(AlgorithmKind kind, Place place, const Workspace& work, int64_t count,
                                        const GroupCore& core) {
  const GroupOptions& options = core.options();
  const size_t bytes = work.bytes(0, count).size();
  switch (kind) {
    case AlgorithmKind::kTree:
      return NewTreeAllReduce(place, work, count);
    case AlgorithmKind::kDoubling:
      return NewDoubling(place, work, count);
    case AlgorithmKind::kHalvingDoubling:
      return NewHalvingDoubling(place, work, count);
    case AlgorithmKind::kRing:
      return NewRing(place, work, EvenBounds(count, place.size), {.chunk_bytes = options.chunk_bytes});
    case AlgorithmKind::kDirect:
      if (bytes <= options.small_bytes) return NewFullExchange(place, work, count);
      return NewDirect(place, work, EvenBounds(count, place.size),
                       {.chunk_bytes = options.chunk_bytes, .ahead = options.chunks_ahead});
    case AlgorithmKind::kHierarchy: {
      if (core.hosts().size() == 1) return NewAllReduce(AlgorithmKind::kDirect, place, work, count, core);
      const auto across = [&](Place leader, const Workspace& sums) {
        const AlgorithmKind chosen = ChooseAcross(options, static_cast<size_t>(leader.size), bytes);
        return NewAllReduce(chosen, leader, sums, count, core);
      };
      return NewHierarchy(place, work, count, core.hosts(),
                          {.small_bytes = options.small_bytes,
                           .chunk_bytes = options.chunk_bytes,
                           .ahead = options.chunks_ahead,
                           .across = across});
    }
    default:
      return nullptr;
  }
}

// A hash of who shares a host.
uint64_t HostsHash(const GroupCore& core) {
  std::vector<int> order;
  for (const std::vector<int>& host : core.hosts()) {
    order.insert(order.end(), host.begin(), host.end());
    order.push_back(-1);
  }
  return LayoutHash<int>(order);
}

// Without the key.
OperationSpec AllReduceSpec(const Elements& elements, Reduction reduction, const OperationOptions& options,
                            const GroupCore& core) {
  OperationSpec spec{.kind = OperationKind::kAllReduce,
                     .dtype = elements.dtype,
                     .reduction = reduction,
                     .algorithm = options.algorithm,
                     .count = elements.count};
  if (spec.algorithm == AlgorithmKind::kAuto) spec.algorithm = Choose(core, spec.bytes());
  if (spec.algorithm == AlgorithmKind::kHierarchy) spec.layout = HostsHash(core);
  return spec;
}

}  // namespace

StatusOr<std::unique_ptr<CollectiveGroup>> CollectiveGroup::Make(CollectiveService* service, GroupOptions options) {
  if (options.ranks.empty() || options.ranks.size() > kMostRanks)
    return InvalidArgument("a collective group cannot have ", options.ranks.size(), " ranks");
  if (options.rank < 0 || options.rank >= static_cast<int>(options.ranks.size()))
    return InvalidArgument("collective group '", options.key, "' of ", options.ranks.size(), " ranks has no rank ",
                           options.rank);
  if (options.key.empty() || options.key.size() > kLongestKey)
    return InvalidArgument("the key of a collective group has 1 to ", kLongestKey, " bytes, not ", options.key.size());
  if (options.transport == nullptr) return InvalidArgument("a collective group needs a transport");
  const std::string key = options.key;
  auto core = std::make_shared<GroupCore>(std::move(options));
  MR_RETURN_IF_ERROR(service->Add(key, core));
  return std::unique_ptr<CollectiveGroup>(new CollectiveGroup(service, std::move(core)));
}

CollectiveGroup::CollectiveGroup(CollectiveService* service, std::shared_ptr<GroupCore> core)
    : service_(service), core_(std::move(core)) {}

CollectiveGroup::~CollectiveGroup() {
  service_->Remove(core_->options().key);
  core_->Close();
}

int CollectiveGroup::rank() const { return core_->rank(); }
int CollectiveGroup::size() const { return core_->size(); }
const RefPtr<ThreadHandover>& CollectiveGroup::handover() const { return core_->handover(); }
bool CollectiveGroup::Attend(absl::FunctionRef<void(Done)> start, Status* result) {
  return core_->Attend(start, result);
}
void CollectiveGroup::Leave(Done done) { core_->Leave(std::move(done)); }
void CollectiveGroup::Abort(Status why) { core_->Fail(WithPrefix(absl::StrCat(core_->RankName(rank()), ": "), why)); }

void CollectiveGroup::Start(OperationSpec spec, std::unique_ptr<Algorithm> algorithm, const Elements& elements,
                            const OperationOptions& options, Done done) {
  if (options.key.size() > kLongestKey)
    return done(InvalidArgument("the key of a collective operation has ", options.key.size(), " bytes, of which ",
                                kLongestKey, " are allowed"));
  spec.key = options.key;
  spec.dtype = elements.dtype;
  core_->Start(
      {.spec = std::move(spec), .algorithm = std::move(algorithm), .owner = elements.owner, .done = std::move(done)},
      options.timeout);
}

void CollectiveGroup::AllReduce(Elements elements, Reduction reduction, const OperationOptions& options, Done done) {
  Status valid = CheckElements(elements);
  if (valid.ok()) valid = CheckReducible(elements.dtype, reduction);
  if (!valid.ok()) return done(valid);
  const Place place{rank(), size()};
  const Workspace work{static_cast<char*>(elements.data), elements.dtype, reduction};
  const OperationSpec spec = AllReduceSpec(elements, reduction, options, *core_);
  std::unique_ptr<Algorithm> algorithm = NewAllReduce(spec.algorithm, place, work, elements.count, *core_);
  if (algorithm == nullptr)
    return done(InvalidArgument("all-reduce cannot use the algorithm ", AlgorithmName(spec.algorithm)));
  Start(spec, std::move(algorithm), elements, options, std::move(done));
}

std::optional<Status> CollectiveGroup::QuickAllReduce(const Elements& elements, Reduction reduction,
                                                      const OperationOptions& options) {
  if (size() < 2 || size() > static_cast<int>(kMostDoubling) || options.timeout != absl::InfiniteDuration() ||
      options.key.size() > kLongestKey || !CheckElements(elements).ok() ||
      !CheckReducible(elements.dtype, reduction).ok())
    return std::nullopt;
  OperationSpec spec = AllReduceSpec(elements, reduction, options, *core_);
  if (spec.algorithm != AlgorithmKind::kDirect || spec.bytes() > core_->options().small_bytes) return std::nullopt;
  spec.key = options.key;
  return core_->QuickAllReduce(spec, {static_cast<char*>(elements.data), elements.dtype, reduction}, elements.count,
                               elements.owner);
}

void CollectiveGroup::ReduceScatter(Elements elements, Reduction reduction, const OperationOptions& options,
                                    Done done) {
  Status valid = CheckElements(elements);
  if (valid.ok()) valid = CheckReducible(elements.dtype, reduction);
  if (!valid.ok()) return done(valid);
  Start({.kind = OperationKind::kReduceScatter,
         .reduction = reduction,
         .algorithm = AlgorithmKind::kRing,
         .count = elements.count},
        NewRing({rank(), size()}, {static_cast<char*>(elements.data), elements.dtype, reduction},
                EvenBounds(elements.count, size()), {.gathers = false, .chunk_bytes = core_->options().chunk_bytes}),
        elements, options, std::move(done));
}

void CollectiveGroup::AllGather(Elements elements, std::vector<int64_t> counts, const OperationOptions& options,
                                Done done) {
  if (const Status valid = CheckElements(elements); !valid.ok()) return done(valid);
  std::vector<int64_t> bounds = EvenBounds(elements.count, size());
  if (!counts.empty()) {
    const bool negative = std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count < 0; });
    if (static_cast<int>(counts.size()) != size() || negative ||
        std::accumulate(counts.begin(), counts.end(), int64_t{0}) != elements.count)
      return done(InvalidArgument("the counts of an all-gather of ", elements.count, " elements of ", size(),
                                  " ranks do not add up"));
    for (int rank = 0; rank < size(); ++rank) bounds[rank + 1] = bounds[rank] + counts[rank];
  }
  const uint64_t layout = LayoutHash<int64_t>(bounds);
  Start(
      {.kind = OperationKind::kAllGather, .algorithm = AlgorithmKind::kRing, .count = elements.count, .layout = layout},
      NewRing({rank(), size()}, {static_cast<char*>(elements.data), elements.dtype}, std::move(bounds),
              {.reduces = false, .chunk_bytes = core_->options().chunk_bytes}),
      elements, options, std::move(done));
}

void CollectiveGroup::Broadcast(Elements elements, int root, const OperationOptions& options, Done done) {
  if (const Status valid = CheckElements(elements); !valid.ok()) return done(valid);
  if (root < 0 || root >= size())
    return done(InvalidArgument("a group of ", size(), " ranks has no rank ", root, " to broadcast from"));
  Start({.kind = OperationKind::kBroadcast, .algorithm = AlgorithmKind::kTree, .count = elements.count, .root = root},
        NewTreeBroadcast({rank(), size()}, {static_cast<char*>(elements.data), elements.dtype}, elements.count, root,
                         core_->options().chunk_bytes),
        elements, options, std::move(done));
}

void CollectiveGroup::AllToAll(Elements from, Elements to, const OperationOptions& options, Done done) {
  Status valid = CheckElements(from);
  if (valid.ok()) valid = CheckElements(to);
  if (valid.ok() && (from.count != to.count || from.dtype != to.dtype || from.count % size() != 0))
    valid = InvalidArgument("all-to-all needs as many elements of one type to send as to receive, and a multiple of ",
                            size(), "; there are ", from.count, " ", from.dtype, " and ", to.count, " ", to.dtype);
  if (!valid.ok()) return done(valid);
  const OperationSpec spec{.kind = OperationKind::kAllToAll, .algorithm = AlgorithmKind::kDirect, .count = from.count};
  auto algorithm = NewAllToAll({rank(), size()}, {static_cast<char*>(to.data), to.dtype},
                               static_cast<const char*>(from.data), from.count / size());
  Start(spec, std::move(algorithm), from, options, std::move(done));
}

void CollectiveGroup::Barrier(const OperationOptions& options, Done done) {
  Start({.kind = OperationKind::kBarrier, .algorithm = AlgorithmKind::kTree}, NewTreeAllReduce({rank(), size()}, {}, 0),
        {}, options, std::move(done));
}

void CollectiveGroup::FixedOrderAllReduce(std::vector<ShardValue> values, Elements result, Reduction reduction,
                                          std::vector<int> owners, const OperationOptions& options, Done done) {
  Status valid = CheckElements(result);
  if (valid.ok()) valid = CheckReducible(result.dtype, reduction);
  if (valid.ok()) valid = CheckShardValues(values, owners, rank());
  if (!valid.ok()) return done(valid);
  const bool outside =
      std::any_of(owners.begin(), owners.end(), [&](int owner) { return owner < 0 || owner >= size(); });
  if (outside) return done(InvalidArgument("a shard belongs to none of the ", size(), " ranks"));
  const OperationSpec spec{.kind = OperationKind::kAllReduce,
                           .reduction = reduction,
                           .algorithm = AlgorithmKind::kFixedOrder,
                           .count = result.count,
                           .layout = LayoutHash<int>(owners)};
  auto algorithm =
      NewFixedOrder({rank(), size()}, {static_cast<char*>(result.data), result.dtype, reduction}, result.count,
                    std::move(owners), std::move(values), {.chunk_bytes = core_->options().chunk_bytes});
  Start(spec, std::move(algorithm), result, options, std::move(done));
}

std::pair<int64_t, int64_t> ScatterPart(int64_t count, int rank, int size) {
  const std::vector<int64_t> bounds = EvenBounds(count, size);
  return {bounds[rank], bounds[rank + 1]};
}

}  // namespace millrace::collective
