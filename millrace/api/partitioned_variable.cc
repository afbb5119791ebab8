#include "millrace/api/partitioned_variable.h"

#include <algorithm>
#include <cmath>

#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"
#include "millrace/api/variable_creation.h"

namespace millrace {
namespace {

// The result of a partitioner along one axis. For an axis that the shape does not have it has too many entries, which
// PartitionedVar rejects.
std::vector<int64_t> Along(const Shape& shape, int axis, int64_t parts) {
  std::vector<int64_t> counts(static_cast<size_t>(std::max(shape.rank(), axis + 1)), 1);
  if (axis >= 0) counts[static_cast<size_t>(axis)] = parts;
  return counts;
}
bool HasAxis(const Shape& shape, int axis) { return axis >= 0 && axis < shape.rank(); }
int64_t ElementBytes(DType dtype, int64_t bytes_per_string) {
  return dtype == DType::kString ? bytes_per_string : static_cast<int64_t>(SizeOf(dtype));
}
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Partitioner FixedSizePartitioner(int64_t parts, int axis) {
  return [=](const Shape& shape, DType) {
    return Along(shape, axis, HasAxis(shape, axis) ? std::min(parts, std::max<int64_t>(1, shape.dim(axis))) : parts);
  };
}

Partitioner VariableAxisSizePartitioner(const VariableAxisSizeOptions& options) {
  return [options](const Shape& shape, DType dtype) {
    if (!HasAxis(shape, options.axis) || options.max_part_bytes < 1) return Along(shape, options.axis, 0);
    const int64_t rows = shape.dim(options.axis);
    if (rows == 0) return Along(shape, options.axis, 1);
    const int64_t row_bytes =
        std::max<int64_t>(1, shape.num_elements() / rows * ElementBytes(dtype, options.bytes_per_string));
    int64_t parts = CeilDiv(rows, std::max<int64_t>(1, options.max_part_bytes / row_bytes));
    if (options.max_parts > 0) parts = std::min(parts, options.max_parts);
    return Along(shape, options.axis, parts);
  };
}

Partitioner MinMaxPartitioner(const MinMaxOptions& options) {
  return [options](const Shape& shape, DType dtype) {
    if (!HasAxis(shape, options.axis) || options.max_parts < 1 || options.min_part_bytes < 1)
      return Along(shape, options.axis, 0);
    const int64_t bytes = shape.num_elements() * ElementBytes(dtype, options.bytes_per_string);
    const int64_t parts =
        std::min({shape.dim(options.axis), options.max_parts, CeilDiv(bytes, options.min_part_bytes)});
    return Along(shape, options.axis, std::max<int64_t>(1, parts));
  };
}

namespace {

// The dimension that is split, and the number of parts.
struct Cut {
  int axis = 0;
  int64_t parts = 1;
};
StatusOr<Cut> CutOf(const Shape& shape, const std::vector<int64_t>& counts) {
  if (static_cast<int>(counts.size()) != shape.rank()) {
    return InvalidArgument("the partitioner cuts ", counts.size(), " dimensions, and there are ", shape.rank());
  }
  Cut cut;
  for (int i = 0; i < shape.rank(); ++i) {
    const int64_t count = counts[static_cast<size_t>(i)];
    if (count < 1) return InvalidArgument("the partitioner gives ", count, " parts for dimension ", i);
    if (count == 1) continue;
    if (cut.parts > 1)
      return InvalidArgument("the partitioner cuts dimensions ", cut.axis, " and ", i, "; only one can be cut");
    if (count > shape.dim(i))
      return InvalidArgument("the partitioner gives ", count, " parts for dimension ", i, ", which is ", shape.dim(i),
                             " long");
    cut = {i, count};
  }
  return cut;
}

}  // namespace

PartitionedVar::PartitionedVar(const Scope& scope, absl::string_view name, const Shape& shape, const Initializer& init,
                               const Partitioner& partitioner, const VarOptions& options)
    : shape_(shape), dtype_(options.dtype) {
  if (!scope.ok()) return;
  const StatusOr<Cut> cut = CutOf(shape, partitioner(shape, options.dtype));
  if (!cut.ok()) {
    const std::string which = absl::StrCat("partitioned variable ", name, " in scope '", scope.prefix(), "' of shape ",
                                           shape.ToString(), ": ");
    scope.UpdateStatus(WithPrefix(which, cut.status()));
    return;
  }
  axis_ = cut->axis;
  const int64_t parts = cut->parts;

  const StatusOr<api_internal::PartsScope> reserved = api_internal::ReservePartitioned(scope, name);
  if (!reserved.ok()) {
    scope.UpdateStatus(reserved.status());
    return;
  }
  name_ = reserved->name;
  const int64_t rows = shape.rank() == 0 ? 1 : shape.dim(axis_);
  auto& state = api_internal::StateOf(scope);
  int64_t begin = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t length = rows / parts + (i < rows % parts ? 1 : 0);
    VariableSlice slice = {.full_name = name_,
                           .full_shape = shape,
                           .offset = std::vector<int64_t>(static_cast<size_t>(shape.rank()), 0),
                           .shape = shape};
    if (shape.rank() > 0) {
      slice.offset[static_cast<size_t>(axis_)] = begin;
      Shape::Dims dims(shape.dims().begin(), shape.dims().end());
      dims[static_cast<size_t>(axis_)] = length;
      slice.shape = Shape(dims);
    }
    begin += length;
    state.initializing = &slice;
    const Var part(reserved->scope, absl::StrCat("part_", i), slice.shape, init, options);
    state.initializing = nullptr;
    if (!scope.ok()) {
      parts_.clear();
      return;
    }
    SetSlice(part, std::move(slice));
    parts_.push_back(part);
  }
}

PartitionedVar::PartitionedVar(const Scope& scope, absl::string_view name, const Shape& shape, const Initializer& init,
                               const VarOptions& options) {
  const auto& variables = api_internal::SettingsOf(scope).variables;
  if (variables != nullptr && variables->partitioner != nullptr) {
    *this = PartitionedVar(scope, name, shape, init, variables->partitioner, options);
    return;
  }
  const Var whole(scope, name, shape, init, options);
  shape_ = shape;
  dtype_ = options.dtype;
  if (whole.empty()) return;
  name_ = whole.var_name();
  parts_ = {whole};
}

Output PartitionedVar::Value(const Scope& scope) const {
  if (parts_.empty() || parts_.size() == 1) return parts_.empty() ? Output() : Op(scope, "Identity", {parts_[0]});
  std::vector<Input> values(parts_.begin(), parts_.end());
  return Op(scope, "ConcatV2", {InputList(std::move(values)), axis_});
}

Operation PartitionedVar::Assign(const Scope& scope, const Input& value) const {
  const Scope s = scope.ForComposite("Assign");
  const Output whole = value.In(s, dtype_);
  std::vector<Operation> assigns;
  for (const Var& part : parts_) {
    const VariableSlice* const slice = SliceOf(part);
    if (slice == nullptr) {
      assigns.push_back(part.Assign(s, whole));
      continue;
    }
    const std::vector<int64_t> sizes(slice->shape.dims().begin(), slice->shape.dims().end());
    assigns.push_back(part.Assign(s, Op(s, "Slice", {whole, slice->offset, sizes})));
  }
  return Group(s, assigns);
}

namespace {

// The part that contains an id, and the row within the part.
struct Place {
  Output part;
  Output row;
};
Place Mod(const Scope& s, const Output& ids, int64_t parts) {
  return {Op(s, "FloorMod", {ids, parts}), Op(s, "FloorDiv", {ids, parts})};
}
// The first `extra` parts have one row more than the others.
Place Div(const Scope& s, const Output& ids, int64_t rows, int64_t parts) {
  const int64_t each = rows / parts, extra = rows % parts;
  if (each == 0) return {ids, Op(s, "ZerosLike", {ids})};  // fewer rows than parts: one row each
  const Output later = Op(s, "Sub", {ids, extra});
  const Output part = Op(s, "Maximum", {Op(s, "FloorDiv", {ids, each + 1}), Op(s, "FloorDiv", {later, each})});
  return {part,
          Op(s, "SelectV2",
             {Op(s, "Less", {part, extra}), Op(s, "FloorMod", {ids, each + 1}), Op(s, "FloorMod", {later, each})})};
}

}  // namespace

Output EmbeddingLookup(const Scope& scope, const std::vector<Var>& parts, const Input& ids, LookupStrategy strategy) {
  const Scope s = scope.ForComposite("embedding_lookup");
  if (!s.ok()) return Output(s, Endpoint{});
  if (parts.empty()) {
    s.UpdateStatus(InvalidArgument("embedding lookup in scope '", s.prefix(), "': the table has no parts"));
    return Output(s, Endpoint{});
  }
  const Output given = ids.In(s, DType::kInt32, "ids");
  const auto gather = [&](const Var& part, const Output& rows) {
    return Op(s, "ResourceGather", {part.handle(), rows}, {{"dtype", part.dtype()}});
  };
  if (parts.size() == 1) return gather(parts[0], given);
  int64_t rows = 0;
  for (const Var& part : parts) {
    const PartialShape shape = part.shape();
    if (shape.rank() < 1 || shape.dim(0) < 0) {
      s.UpdateStatus(InvalidArgument("embedding lookup in scope '", s.prefix(), "': ", part.var_name(), " has shape ",
                                     shape.ToString(), "; the number of rows must be known"));
      return Output(s, Endpoint{});
    }
    rows += shape.dim(0);
  }
  const auto count = static_cast<int64_t>(parts.size());
  const Output flat = Op(s, "Reshape", {given, std::vector<int32_t>{-1}});
  const Place place = strategy == LookupStrategy::kMod ? Mod(s, flat, count) : Div(s, flat, rows, count);
  const Output part =
      given.dtype() == DType::kInt32 ? place.part : Op(s, "Cast", {place.part}, {{"DstT", DType::kInt32}});
  const Output order = Op(s, "Range", {0, Op(s, "Size", {flat}), 1});
  const AttrList cut = {{"num_partitions", count}};
  const Operation ids_of = AddOp(s, "DynamicPartition", {place.row, part}, cut),
                  places_of = AddOp(s, "DynamicPartition", {order, part}, cut);
  std::vector<Input> found, places;
  for (int i = 0; i < static_cast<int>(count); ++i) {
    found.push_back(gather(parts[static_cast<size_t>(i)], ids_of.output(i)));
    places.push_back(places_of.output(i));
  }
  const Output stitched = Op(s, "ParallelDynamicStitch", {InputList(places), InputList(found)});
  std::vector<int32_t> row_dims;
  const PartialShape row = parts[0].shape();
  for (int i = 1; i < row.rank(); ++i) row_dims.push_back(static_cast<int32_t>(row.dim(i)));
  const Output shape = Op(s, "ConcatV2", {InputList{Op(s, "Shape", {given}), Input(row_dims)}, 0});
  return Op(s, "Reshape", {stitched, shape});
}

Output EmbeddingLookup(const Scope& scope, const PartitionedVar& table, const Input& ids, LookupStrategy strategy) {
  if (scope.ok() && table.axis() != 0) {
    scope.UpdateStatus(InvalidArgument("embedding lookup in scope '", scope.prefix(), "': ", table.name(),
                                       " is cut along dimension ", table.axis(),
                                       "; only a table that is cut along its rows can be looked up in parts"));
  }
  return EmbeddingLookup(scope, table.parts(), ids, strategy);
}

}  // namespace millrace
