#include "millrace/io/tensor_slice.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "millrace/io/coding.h"

namespace millrace {

StatusOr<TensorSlice> TensorSlice::Parse(absl::string_view text) {
  std::vector<Extent> extents;
  if (text.empty()) return TensorSlice();
  for (const absl::string_view part : absl::StrSplit(text, ':')) {
    Extent extent;
    if (part != "-") {
      const std::vector<absl::string_view> numbers = absl::StrSplit(part, ',');
      if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &extent.start) ||
          !absl::SimpleAtoi(numbers[1], &extent.length)) {
        return InvalidArgument("Expected a pair of numbers or '-' but got '", part, "': string = ", text);
      }
      if (extent.start < 0 || extent.length <= 0) {
        return InvalidArgument("Expected non-negative start and positive length but got start = ", extent.start,
                               ", length = ", extent.length, ": string = ", text);
      }
    }
    extents.push_back(extent);
  }
  return TensorSlice(std::move(extents));
}

StatusOr<TensorSlice> TensorSlice::FromProto(const pb::TensorSliceProto& proto) {
  std::vector<Extent> extents;
  for (const pb::TensorSliceProto::Extent& given : proto.extent()) {
    Extent extent;
    if (given.has_length_hack_case() == pb::TensorSliceProto::Extent::kLength) {
      extent = {given.start(), given.length()};
      if (extent.start < 0 || extent.length < 0)
        return InvalidArgument("invalid slice: start ", extent.start, ", length ", extent.length);
    } else if (given.start() != 0) {
      return InvalidArgument("invalid slice: start ", given.start(), " without a length");
    }
    extents.push_back(extent);
  }
  return TensorSlice(std::move(extents));
}

void TensorSlice::ToProto(pb::TensorSliceProto* proto) const {
  for (const Extent& extent : extents_) {
    pb::TensorSliceProto::Extent* const out = proto->add_extent();
    if (extent.length == kWhole) continue;
    out->set_start(extent.start);
    out->set_length(extent.length);
  }
}

std::string TensorSlice::ToString() const {
  return absl::StrJoin(extents_, ":", [](std::string* out, const Extent& extent) {
    if (extent.length == kWhole) {
      absl::StrAppend(out, "-");
    } else {
      absl::StrAppend(out, extent.start, ",", extent.length);
    }
  });
}

StatusOr<Shape> TensorSlice::ShapeIn(const Shape& full) const {
  if (rank() != full.rank()) {
    return Internal("Mismatching ranks: shape = ", full.ToString(), ", slice = ", ToString());
  }
  Shape part = full;
  for (int i = 0; i < rank(); ++i) {
    const Extent& e = extent(i);
    if (e.length == kWhole) continue;
    if (e.length > full.dim(i) || e.start > full.dim(i) - e.length) {
      return Internal("Extent in dimension ", i, " out of bounds: shape = ", full.ToString(), ", slice = ", ToString());
    }
    part.set_dim(i, e.length);
  }
  return part;
}

bool TensorSlice::Covers(const Shape& full) const {
  if (rank() != full.rank()) return false;
  for (int i = 0; i < rank(); ++i) {
    if (extent(i).length != kWhole && extent(i).length != full.dim(i)) return false;
  }
  return true;
}

TensorSlice TensorSlice::Resolved(const Shape& full) const {
  std::vector<Extent> extents = extents_;
  for (int i = 0; i < rank(); ++i) {
    if (extent(i).length == kWhole) extents[static_cast<size_t>(i)].length = full.dim(i);
  }
  return TensorSlice(std::move(extents));
}

bool TensorSlice::Intersect(const TensorSlice& other, TensorSlice* common) const {
  std::vector<Extent> extents;
  for (int i = 0; i < rank(); ++i) {
    const int64_t start = std::max(extent(i).start, other.extent(i).start);
    const int64_t end = std::min(extent(i).start + extent(i).length, other.extent(i).start + other.extent(i).length);
    if (start >= end) return false;
    extents.push_back({start, end - start});
  }
  *common = TensorSlice(std::move(extents));
  return true;
}

StatusOr<ShapeAndSlice> ShapeAndSlice::Parse(absl::string_view text) {
  std::vector<absl::string_view> parts = absl::StrSplit(text, ' ');
  if (parts.size() < 2) {
    return InvalidArgument("Need least two elements in shape_and_slice specification: ", text);
  }
  ShapeAndSlice result;
  MR_ASSIGN_OR_RETURN(result.slice, TensorSlice::Parse(parts.back()));
  parts.pop_back();
  Shape::Dims dims;
  for (const absl::string_view part : parts) {
    int64_t dim;
    if (!absl::SimpleAtoi(part, &dim)) {
      return InvalidArgument("Non numerical dimension in shape_and_slice: ", text);
    }
    dims.push_back(dim);
  }
  MR_ASSIGN_OR_RETURN(result.full, Shape::Make(dims));
  MR_ASSIGN_OR_RETURN(result.part, result.slice.ShapeIn(result.full));
  return result;
}

std::string SliceKey(absl::string_view name, const TensorSlice& slice) {
  std::string key;
  PutOrderedNumber(&key, 0);
  PutOrderedString(&key, name);
  PutOrderedNumber(&key, static_cast<uint64_t>(slice.rank()));
  for (int i = 0; i < slice.rank(); ++i) {
    PutOrderedSigned(&key, slice.start(i));
    PutOrderedSigned(&key, slice.extent(i).length);
  }
  return key;
}

void CopyCommonPart(const TensorSlice& from_slice, const void* from, int64_t first, int64_t last,
                    const TensorSlice& common, const TensorSlice& to_slice, Tensor* to) {
  const int rank = from_slice.rank();
  const int64_t width = rank == 0 ? 1 : from_slice.extent(rank - 1).length;
  const size_t element = SizeOf(to->dtype());
  if (first >= last || width == 0) return;
  for (int64_t row = first / width; row <= (last - 1) / width; ++row) {
    // The row's position in `to`, and whether `common` contains the row.
    int64_t to_row = 0, scale = 1, rest = row;
    bool wanted = true;
    for (int i = rank - 2; i >= 0 && wanted; --i) {
      const int64_t at = from_slice.start(i) + rest % from_slice.extent(i).length;
      rest /= from_slice.extent(i).length;
      wanted = at >= common.start(i) && at - common.start(i) < common.extent(i).length;
      to_row += (at - to_slice.start(i)) * scale;
      scale *= to_slice.extent(i).length;
    }
    if (!wanted) continue;
    // The columns of this row that are both available and wanted.
    int64_t begin = std::max<int64_t>(0, first - row * width), end = std::min(width, last - row * width);
    int64_t to_at = to_row;
    if (rank > 0) {
      const int64_t shift = common.start(rank - 1) - from_slice.start(rank - 1);
      begin = std::max(begin, shift);
      end = std::min(end, shift + common.extent(rank - 1).length);
      to_at = to_row * to_slice.extent(rank - 1).length + from_slice.start(rank - 1) + begin - to_slice.start(rank - 1);
    }
    if (begin >= end) continue;
    const int64_t from_at = row * width + begin - first;
    if (to->dtype() == DType::kString) {
      const auto* const strings = static_cast<const std::string*>(from) + from_at;
      std::copy(strings, strings + (end - begin), to->data<std::string>() + to_at);
    } else {
      std::memcpy(static_cast<char*>(to->raw_data()) + static_cast<size_t>(to_at) * element,
                  static_cast<const char*>(from) + static_cast<size_t>(from_at) * element,
                  static_cast<size_t>(end - begin) * element);
    }
  }
}

}  // namespace millrace
