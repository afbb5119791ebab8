#include "millrace/strategy/horovod/announcement.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "millrace/base/varint.h"
#include "millrace/collective/reduction.h"

namespace millrace::hvd {
namespace {

using Kind = NamedCollective::Kind;
using collective::Reduction;

constexpr size_t kLongestName = 1 << 16;
constexpr size_t kMostDims = 254;
constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMean, Reduction::kMin, Reduction::kMax,
                                     Reduction::kProduct};

std::string TensorText(const Announcement& what) {
  return absl::StrCat(DTypeName(what.dtype), "[", absl::StrJoin(what.dims, ","), "]");
}

// As far as the ranks must agree.
Announcement Common(Announcement what) {
  if (what.kind == Kind::kAllgather && !what.dims.empty()) what.dims[0] = -1;
  return what;
}

}  // namespace

absl::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kAllreduce:
      return "allreduce";
    case Kind::kAllgather:
      return "allgather";
    case Kind::kBroadcast:
      return "broadcast";
  }
  return "unknown operation";
}

std::string Describe(const Announcement& what) {
  const std::string head = absl::StrCat(KindName(what.kind), " '", what.name, "' (");
  switch (what.kind) {
    case Kind::kAllreduce:
      return absl::StrCat(head, "the ", collective::ReductionName(what.reduction), " of ", TensorText(what), ")");
    case Kind::kAllgather:
      return absl::StrCat(head, TensorText(what), ")");
    case Kind::kBroadcast:
      return absl::StrCat(head, TensorText(what), " from rank ", what.root, ")");
  }
  return head;
}

StatusOr<Announcement> AnnouncementOf(const NamedCollective& operation, int ranks) {
  const Tensor& tensor = operation.tensor;
  const std::string who = absl::StrCat(KindName(operation.kind), " '", operation.name, "': ");
  if (operation.name.empty() || operation.name.size() > kLongestName)
    return InvalidArgument("the name of a tensor has 1 to ", kLongestName, " bytes, not ", operation.name.size());
  if (!tensor.IsInitialized() || !IsPlain(tensor.dtype()))
    return InvalidArgument(who, "ranks exchange numbers, not ", tensor.DebugString());
  Announcement what{.kind = operation.kind,
                    .name = operation.name,
                    .dtype = tensor.dtype(),
                    .dims = {tensor.shape().dims().begin(), tensor.shape().dims().end()},
                    .root = operation.root};
  if (what.kind == Kind::kAllreduce) {
    bool known = false;
    for (const Reduction reduction : kReductions) {
      if (operation.reduction != collective::ReductionName(reduction)) continue;
      what.reduction = reduction;
      known = true;
    }
    if (!known) return InvalidArgument(who, "there is no reduction '", operation.reduction, "'");
    const Status reducible = collective::CheckReducible(what.dtype, what.reduction);
    if (!reducible.ok()) return WithPrefix(who, reducible);
  }
  if (what.kind == Kind::kAllgather && what.dims.empty())
    return InvalidArgument(who, "a scalar has no first dimension to join along");
  if (what.kind != Kind::kBroadcast) {
    what.root = 0;
  } else if (what.root < 0 || what.root >= ranks) {
    return InvalidArgument(who, "there is no rank ", what.root, " to broadcast from: there are ", ranks, " ranks");
  }
  return what;
}

Status CheckSame(int rank, const Announcement& what, int other_rank, const Announcement& other) {
  if (Common(what) == Common(other)) return absl::OkStatus();
  return InvalidArgument("the ranks differ: rank ", rank, " has ", Describe(what), ", rank ", other_rank, " has ",
                         Describe(other));
}

std::string EncodeReport(const Report& report) {
  std::string bytes;
  PutVarint(&bytes, report.joins ? 1 : 0);
  PutVarint(&bytes, report.announcements.size());
  for (const Announcement& what : report.announcements) {
    PutVarint(&bytes, static_cast<uint64_t>(what.kind));
    PutVarint(&bytes, what.name.size());
    bytes += what.name;
    PutVarint(&bytes, static_cast<uint64_t>(what.dtype));
    PutVarint(&bytes, what.dims.size());
    for (const int64_t dim : what.dims) PutVarint(&bytes, static_cast<uint64_t>(dim));
    PutVarint(&bytes, static_cast<uint64_t>(what.reduction));
    PutVarint(&bytes, static_cast<uint64_t>(what.root));
  }
  return bytes;
}

StatusOr<Report> DecodeReport(absl::string_view bytes) {
  const Status bad = InvalidArgument("a rank's report of what it has submitted cannot be read");
  Report report;
  uint64_t joins = 0, count = 0;
  if (!TakeVarint(&bytes, &joins) || joins > 1 || !TakeVarint(&bytes, &count)) return bad;
  report.joins = joins == 1;
  for (uint64_t i = 0; i < count; ++i) {
    Announcement what;
    uint64_t kind = 0, length = 0, dtype = 0, rank = 0, reduction = 0, root = 0;
    if (!TakeVarint(&bytes, &kind) || kind > static_cast<uint64_t>(Kind::kBroadcast)) return bad;
    if (!TakeVarint(&bytes, &length) || length > bytes.size()) return bad;
    what.kind = static_cast<Kind>(kind);
    what.name = std::string(bytes.substr(0, length));
    bytes.remove_prefix(length);
    if (!TakeVarint(&bytes, &dtype) || dtype > 0xff || !IsPlain(static_cast<DType>(dtype))) return bad;
    what.dtype = static_cast<DType>(dtype);
    if (!TakeVarint(&bytes, &rank) || rank > kMostDims) return bad;
    for (uint64_t d = 0; d < rank; ++d) {
      uint64_t dim = 0;
      if (!TakeVarint(&bytes, &dim) || dim > (uint64_t{1} << 48)) return bad;
      what.dims.push_back(static_cast<int64_t>(dim));
    }
    if (!TakeVarint(&bytes, &reduction) || reduction > static_cast<uint64_t>(Reduction::kProduct)) return bad;
    if (!TakeVarint(&bytes, &root) || root > (1 << 30)) return bad;
    what.reduction = static_cast<Reduction>(reduction);
    what.root = static_cast<int>(root);
    report.announcements.push_back(std::move(what));
  }
  if (!bytes.empty()) return bad;
  return report;
}

}  // namespace millrace::hvd
