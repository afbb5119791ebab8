#include "millrace/collective/operation.h"

#include "millrace/base/varint.h"

namespace millrace::collective {
namespace {

constexpr absl::string_view kKindNames[kOperationKinds] = {"all-reduce", "reduce-scatter", "all-gather",
                                                           "broadcast",  "all-to-all",     "barrier"};
constexpr absl::string_view kAlgorithmNames[kAlgorithmKinds] = {"auto", "ring",   "halving-doubling", "doubling",
                                                                "tree", "direct", "fixed order",      "hierarchy"};
// More elements than any memory holds.
constexpr uint64_t kMostElements = uint64_t{1} << 48;

}  // namespace

absl::string_view AlgorithmName(AlgorithmKind kind) { return kAlgorithmNames[static_cast<int>(kind)]; }

std::string Describe(const OperationSpec& spec) {
  std::string text = absl::StrCat(kKindNames[static_cast<int>(spec.kind)], " '", spec.key, "'");
  if (spec.kind == OperationKind::kBarrier) return text;
  const bool reduces = spec.kind == OperationKind::kAllReduce || spec.kind == OperationKind::kReduceScatter;
  absl::StrAppend(&text, " (", reduces ? ReductionName(spec.reduction) : "", reduces ? " of " : "", spec.count, " ",
                  DTypeName(spec.dtype), ", ", AlgorithmName(spec.algorithm));
  if (spec.kind == OperationKind::kBroadcast) absl::StrAppend(&text, ", from rank ", spec.root);
  return absl::StrCat(text, ")");
}

Status CheckSame(const std::string& rank_a, const OperationSpec& a, const std::string& rank_b, const OperationSpec& b) {
  if (a == b) return absl::OkStatus();
  std::string one = Describe(a), other = Describe(b);
  const char* how = "the ranks differ in what they do: ";
  if (a.key != b.key) how = "the ranks differ in the order of their operations: ";
  if (one == other) {  // only the hash differs
    absl::StrAppend(&one, " with parts, shards or hosts of hash ", absl::Hex(a.layout));
    absl::StrAppend(&other, " with parts, shards or hosts of hash ", absl::Hex(b.layout));
  }
  return InvalidArgument(how, rank_a, " has ", one, ", ", rank_b, " has ", other);
}

void AppendSpec(const OperationSpec& spec, std::string* out) {
  PutVarint(out, static_cast<uint64_t>(spec.kind));
  PutVarint(out, static_cast<uint64_t>(spec.dtype));
  PutVarint(out, static_cast<uint64_t>(spec.reduction));
  PutVarint(out, static_cast<uint64_t>(spec.algorithm));
  PutVarint(out, static_cast<uint64_t>(spec.count));
  PutVarint(out, static_cast<uint64_t>(spec.root));
  PutVarint(out, spec.layout);
  PutVarint(out, spec.key.size());
  out->append(spec.key);
}

bool ReadSpec(net::BytesReader* reader, OperationSpec* spec) {
  uint64_t kind = 0, dtype = 0, reduction = 0, algorithm = 0, count = 0, root = 0, key = 0;
  if (!reader->ReadVarint(&kind) || kind >= kOperationKinds || !reader->ReadVarint(&dtype) || dtype > 1000 ||
      !reader->ReadVarint(&reduction) || reduction >= kReductions || !reader->ReadVarint(&algorithm) ||
      algorithm >= kAlgorithmKinds || !reader->ReadVarint(&count) || count > kMostElements ||
      !reader->ReadVarint(&root) || root > kMostElements || !reader->ReadVarint(&spec->layout) ||
      !reader->ReadVarint(&key) || key > kLongestKey || !reader->ReadString(key, &spec->key))
    return false;
  spec->kind = static_cast<OperationKind>(kind);
  spec->dtype = static_cast<DType>(dtype);
  spec->reduction = static_cast<Reduction>(reduction);
  spec->algorithm = static_cast<AlgorithmKind>(algorithm);
  spec->count = static_cast<int64_t>(count);
  spec->root = static_cast<int64_t>(root);
  return true;
}

}  // namespace millrace::collective
