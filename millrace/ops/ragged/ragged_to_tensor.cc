// RaggedTensorToTensor: a ragged tensor padded, or cut, to a dense one.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/ragged/splits.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::ragged {
namespace {

// How the rows of one level are given.
enum class PartitionKind { kFirstDimSize, kValueRowIds, kRowSplits };

class RaggedToTensorKernel : public Kernel {
 public:
  explicit RaggedToTensorKernel(KernelInit& init) {
    std::vector<std::string> names;
    init.Attr("row_partition_types", &names);
    for (const std::string& name : names) {
      if (name == "FIRST_DIM_SIZE") {
        kinds_.push_back(PartitionKind::kFirstDimSize);
      } else if (name == "VALUE_ROWIDS") {
        kinds_.push_back(PartitionKind::kValueRowIds);
      } else if (name == "ROW_SPLITS") {
        kinds_.push_back(PartitionKind::kRowSplits);
      } else {
        init.Fail(InvalidArgument("Unknown string for partition info type: ", name));
      }
    }
    const size_t skipped = !kinds_.empty() && kinds_[0] == PartitionKind::kFirstDimSize ? 1 : 0;
    if (kinds_.size() != static_cast<size_t>(init.node().num_inputs() - 3) || kinds_.size() <= skipped) {
      init.Fail(InvalidArgument("row_partition_types has ", kinds_.size(), " entries for ",
                                init.node().num_inputs() - 3, " row partitions"));
      return;
    }
    ragged_rank_ = static_cast<int>(kinds_.size() - skipped);
    first_ = static_cast<int>(3 + skipped);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& values = ctx.input(1);
    if (values.rank() < 1) return InvalidArgument("values must be at least a vector, but are a scalar");
    std::vector<Splits> levels;  // row splits
    MR_RETURN_IF_ERROR(ReadLevels(ctx, values, &levels));
    MR_ASSIGN_OR_RETURN(const Shape shape, OutputShape(ctx.input(0), values, levels));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const int64_t inner = shape.Product(ragged_rank_ + 1, shape.rank());
    MR_RETURN_IF_ERROR(FillDefault(ctx.input(2), shape, inner, out));
    // Where each row of the level goes, in rows of the output at that depth; -1: it is cut off.
    Splits places(levels[0].size() - 1);
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i) < shape.dim(0) ? i : -1;
    for (int l = 0; l < ragged_rank_; ++l) {
      const int64_t width = shape.dim(l + 1);
      Splits next(static_cast<size_t>(levels[l].back()), -1);
      for (size_t r = 0; r < places.size(); ++r) {
        const int64_t begin = levels[l][r], n = std::min(levels[l][r + 1] - begin, width);
        for (int64_t k = 0; k < n && places[r] >= 0; ++k) next[begin + k] = places[r] * width + k;
      }
      places = std::move(next);
    }
    DispatchMove(values.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (size_t v = 0; v < places.size(); ++v) {
        if (places[v] < 0) continue;
        std::copy_n(values.raw<T>() + static_cast<int64_t>(v) * inner, inner, out->raw<T>() + places[v] * inner);
      }
    });
    return absl::OkStatus();
  }

 private:
  Status ReadLevels(const KernelContext& ctx, const Tensor& values, std::vector<Splits>* levels) const {
    int64_t rows = -1;  // of the level, where it is known
    if (first_ == 4) {
      if (ctx.input(3).num_elements() != 1) return InvalidArgument("FIRST_DIM_SIZE must be a scalar");
      rows = IntsOf(ctx.input(3))[0];
      if (rows < 0 || rows > (int64_t{1} << 40)) return InvalidArgument("FIRST_DIM_SIZE is ", rows);
    }
    for (int l = 0; l < ragged_rank_; ++l) {
      const Tensor& t = ctx.input(first_ + l);
      if (kinds_[static_cast<size_t>(first_ - 3 + l)] == PartitionKind::kRowSplits) {
        MR_ASSIGN_OR_RETURN(levels->emplace_back(), SplitsOf(t));
        if (rows >= 0 && static_cast<int64_t>(levels->back().size()) != rows + 1) {
          return InvalidArgument("row splits of level ", l, " have ", levels->back().size() - 1,
                                 " rows, but there are ", rows);
        }
      } else {
        if (rows < 0) return InvalidArgument("Cannot handle VALUE_ROWIDS in first dimension");
        MR_ASSIGN_OR_RETURN(levels->emplace_back(), SplitsOfRowIds(t, rows));
      }
      rows = levels->back().back();
    }
    if (rows == values.dim(0)) return absl::OkStatus();
    return InvalidArgument("the row partitions are for ", rows, " values, but there are ", values.dim(0));
  }

  static StatusOr<Splits> SplitsOfRowIds(const Tensor& t, int64_t rows) {
    if (t.rank() != 1) return InvalidArgument("value_rowids must be a vector");
    Splits splits(static_cast<size_t>(rows) + 1, 0);
    int64_t last = 0;
    for (const int64_t id : IntsOf(t)) {
      if (id < last || id >= rows)
        return InvalidArgument("value_rowids must rise and be below ", rows, ", but has ", id);
      last = id;
      ++splits[static_cast<size_t>(id) + 1];
    }
    for (size_t r = 1; r < splits.size(); ++r) splits[r] += splits[r - 1];
    return splits;
  }

  StatusOr<Shape> OutputShape(const Tensor& wanted, const Tensor& values, const std::vector<Splits>& levels) const {
    Shape::Dims dims = {static_cast<int64_t>(levels[0].size()) - 1};
    for (const Splits& level : levels) {
      int64_t longest = 0;
      for (size_t r = 0; r + 1 < level.size(); ++r) longest = std::max(longest, level[r + 1] - level[r]);
      dims.push_back(longest);
    }
    for (int d = 1; d < values.rank(); ++d) dims.push_back(values.dim(d));
    const Splits asked = IntsOf(wanted);
    if (wanted.rank() == 0) {
      if (asked[0] != -1)
        return InvalidArgument("The only valid scalar shape tensor is the fully unknown shape specified as -1.");
      return Shape::Make(dims);
    }
    if (asked.size() != dims.size()) {
      return InvalidArgument("shape has ", asked.size(), " dimensions, but the tensor has ", dims.size());
    }
    for (size_t i = 0; i < asked.size(); ++i) {
      if (asked[i] < 0) continue;
      if (static_cast<int>(i) > ragged_rank_ && asked[i] != dims[i]) {
        return InvalidArgument("shape asks for ", asked[i], " in dimension ", i, ", where the values have ", dims[i]);
      }
      dims[i] = asked[i];
    }
    return Shape::Make(dims);
  }

  // Broadcasts the default over each inner value.
  static Status FillDefault(const Tensor& given, const Shape& shape, int64_t inner, Tensor* out) {
    const int inner_rank = shape.rank() - 0;
    if (given.rank() > inner_rank) {
      return InvalidArgument("default_value of shape ", given.shape().ToString(), " does not fit into ",
                             shape.ToString());
    }
    for (int d = 0; d < given.rank(); ++d) {
      const int64_t has = given.dim(given.rank() - 1 - d), room = shape.dim(shape.rank() - 1 - d);
      if (has != 1 && has != room) {
        return InvalidArgument("default_value of shape ", given.shape().ToString(), " does not fit into ",
                               shape.ToString());
      }
    }
    DispatchMove(given.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = given.raw<T>();
      T* to = out->raw<T>();
      if (given.num_elements() == 1) {
        std::fill_n(to, out->num_elements(), *from);
        return;
      }
      for (int64_t i = 0; i < out->num_elements(); ++i) {
        int64_t left = i, at = 0, stride = 1;
        for (int d = 0; d < given.rank(); ++d) {
          const int64_t has = given.dim(given.rank() - 1 - d), room = shape.dim(shape.rank() - 1 - d);
          if (has != 1) at += left % room * stride;
          left /= room;
          stride *= has;
        }
        to[i] = from[at];
      }
    });
    return absl::OkStatus();
  }

  std::vector<PartitionKind> kinds_;
  int ragged_rank_ = 1, first_ = 3;
};

Status RaggedToTensorShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape wanted, c.ShapeFromInput(0));
  const PartialShape& values = c.input(1);
  const auto types = c.Attr<std::vector<std::string>>("row_partition_types");
  if (!values.known_rank() || values.rank() < 1 || !types.ok() || types->empty()) {
    c.set_output(0, wanted);
    return absl::OkStatus();
  }
  const size_t ragged_rank = types->size() - ((*types)[0] == "FIRST_DIM_SIZE" ? 1 : 0);
  PartialShape shape = PartialShape::Scalar();
  for (size_t i = 0; i <= ragged_rank; ++i) shape.AddDim(-1);
  for (int d = 1; d < values.rank(); ++d) shape.AddDim(values.dim(d));
  const StatusOr<PartialShape> merged = shape.MergeWith(wanted);
  c.set_output(0, merged.ok() ? *merged : shape);
  return absl::OkStatus();
}

MILLRACE_OP(RaggedTensorToTensor)
    .Summary("A ragged tensor padded to a dense one.")
    .Input("shape: Tshape")
    .Input("values: T")
    .Input("default_value: T")
    .Input("row_partition_tensors: num_row_partition_tensors * Tindex")
    .Output("result: T")
    .Attr("T: type")
    .Attr("Tindex: {int64, int32}")
    .Attr("Tshape: {int64, int32}")
    .Attr("num_row_partition_tensors: int >= 1")
    .Attr("row_partition_types: list(string)")
    .Shape(RaggedToTensorShape);
MILLRACE_KERNEL(RaggedTensorToTensor, kCpu, RaggedToTensorKernel);

}  // namespace
}  // namespace millrace::ragged
