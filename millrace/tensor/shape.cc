#include "millrace/tensor/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "millrace/proto/tensor.pb.h"

namespace millrace {
namespace {

// Ignores unknown and zero dimensions, so that the product of any subset of the dimensions fits too.
bool ProductFits(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (int64_t d : dims) {
    if (d > 0 && __builtin_mul_overflow(product, d, &product)) return false;
  }
  return true;
}

std::string DimsToString(absl::Span<const int64_t> dims) {
  return absl::StrCat("[",
                      absl::StrJoin(dims, ",",
                                    [](std::string* out, int64_t d) {
                                      if (d < 0) {
                                        out->append("?");
                                      } else {
                                        absl::StrAppend(out, d);
                                      }
                                    }),
                      "]");
}

Status CheckDims(absl::Span<const int64_t> dims, int64_t least) {
  if (dims.size() > Shape::kMaxRank) {
    return InvalidArgument("a shape has ", dims.size(), " dimensions, more than ", Shape::kMaxRank);
  }
  for (int64_t d : dims) {
    if (d < least) {
      return InvalidArgument("a dimension of shape [", absl::StrJoin(dims, ","), "] is ", d);
    }
  }
  if (!ProductFits(dims)) {
    return InvalidArgument("Encountered overflow when multiplying the dimensions of shape ", DimsToString(dims),
                           ": it has more elements than fit into 64 bits");
  }
  return absl::OkStatus();
}

StatusOr<Shape::Dims> DimsFromProto(const pb::TensorShapeProto& proto, int64_t least) {
  if (proto.dim_size() > Shape::kMaxRank) {
    return InvalidArgument("a shape has ", proto.dim_size(), " dimensions, more than ", Shape::kMaxRank);
  }
  Shape::Dims dims;
  for (const auto& dim : proto.dim()) dims.push_back(dim.size());
  MR_RETURN_IF_ERROR(CheckDims(dims, least));
  return dims;
}

void DimsToProto(absl::Span<const int64_t> dims, pb::TensorShapeProto* proto) {
  proto->Clear();
  for (int64_t d : dims) proto->add_dim()->set_size(d);
}

}  // namespace

StatusOr<Shape> Shape::Make(absl::Span<const int64_t> dims) {
  MR_RETURN_IF_ERROR(CheckDims(dims, 0));
  return Shape(dims);
}

StatusOr<Shape> Shape::FromProto(const pb::TensorShapeProto& proto) {
  if (proto.unknown_rank()) return InvalidArgument("the shape of a tensor has an unknown rank");
  MR_ASSIGN_OR_RETURN(Dims dims, DimsFromProto(proto, 0));
  return Shape(absl::MakeConstSpan(dims));
}

void Shape::ToProto(pb::TensorShapeProto* proto) const { DimsToProto(dims_, proto); }

std::string Shape::ToString() const { return DimsToString(dims_); }

StatusOr<PartialShape> PartialShape::FromProto(const pb::TensorShapeProto& proto) {
  if (proto.unknown_rank()) {
    if (proto.dim_size() > 0) {
      return InvalidArgument("a shape of unknown rank has ", proto.dim_size(), " dimensions");
    }
    return PartialShape();
  }
  MR_ASSIGN_OR_RETURN(Shape::Dims dims, DimsFromProto(proto, kUnknown));
  return PartialShape(std::move(dims));
}

void PartialShape::ToProto(pb::TensorShapeProto* proto) const {
  DimsToProto(dims_, proto);
  if (!known_rank_) proto->set_unknown_rank(true);
}

bool PartialShape::IsFullyDefined() const {
  if (!known_rank_) return false;
  for (int64_t d : dims_) {
    if (d < 0) return false;
  }
  return true;
}

int64_t PartialShape::num_elements() const {
  if (!IsFullyDefined() || !ProductFits(dims_)) return -1;
  int64_t n = 1;
  for (int64_t d : dims_) n *= d;
  return n;
}

bool PartialShape::IsCompatibleWith(const Shape& shape) const {
  if (!known_rank_) return true;
  if (shape.rank() != rank()) return false;
  for (int i = 0; i < rank(); ++i) {
    if (dims_[i] >= 0 && dims_[i] != shape.dim(i)) return false;
  }
  return true;
}

bool PartialShape::IsCompatibleWith(const PartialShape& other) const {
  if (!known_rank_ || !other.known_rank_) return true;
  if (other.rank() != rank()) return false;
  for (int i = 0; i < rank(); ++i) {
    if (dims_[i] >= 0 && other.dims_[i] >= 0 && dims_[i] != other.dims_[i]) return false;
  }
  return true;
}

StatusOr<PartialShape> PartialShape::MergeWith(const PartialShape& other) const {
  if (!known_rank_) return other;
  if (!other.known_rank_) return *this;
  if (rank() != other.rank()) {
    return InvalidArgument("Incompatible ranks during merge: ", rank(), " vs. ", other.rank(), " (shapes ", ToString(),
                           " and ", other.ToString(), ")");
  }
  if (!IsCompatibleWith(other)) {
    return InvalidArgument("Incompatible shapes during merge: ", ToString(), " vs. ", other.ToString());
  }
  PartialShape merged = *this;
  for (int i = 0; i < rank(); ++i) {
    if (merged.dims_[i] < 0) merged.dims_[i] = other.dims_[i];
  }
  return merged;
}

std::string PartialShape::ToString() const { return known_rank_ ? DimsToString(dims_) : "<unknown>"; }

}  // namespace millrace
