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

AlgorithmKind Choose(const OperationOptions& options, const GroupOptions& group, size_t bytes) {
  if (options.algorithm != AlgorithmKind::kAuto) return options.algorithm;
  if (bytes <= group.small_bytes)
    return group.ranks.size() <= kMostDoubling ? AlgorithmKind::kDoubling : AlgorithmKind::kTree;
  return bytes <= group.halving_bytes ? AlgorithmKind::kHalvingDoubling : AlgorithmKind::kRing;
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
  const AlgorithmKind kind =
      Choose(options, core_->options(), static_cast<size_t>(elements.count) * SizeOf(elements.dtype));
  std::unique_ptr<Algorithm> algorithm;
  switch (kind) {
    case AlgorithmKind::kTree:
      algorithm = NewTreeAllReduce(place, work, elements.count);
      break;
    case AlgorithmKind::kDoubling:
      algorithm = NewDoubling(place, work, elements.count);
      break;
    case AlgorithmKind::kHalvingDoubling:
      algorithm = NewHalvingDoubling(place, work, elements.count);
      break;
    case AlgorithmKind::kRing:
      algorithm =
          NewRing(place, work, EvenBounds(elements.count, size()), {.chunk_bytes = core_->options().chunk_bytes});
      break;
    default:
      return done(InvalidArgument("all-reduce cannot use the algorithm ", AlgorithmName(kind)));
  }
  Start({.kind = OperationKind::kAllReduce, .reduction = reduction, .algorithm = kind, .count = elements.count},
        std::move(algorithm), elements, options, std::move(done));
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
  Start({.kind = OperationKind::kAllGather,
         .algorithm = AlgorithmKind::kRing,
         .count = elements.count,
         .layout = LayoutHash<int64_t>(bounds)},
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
