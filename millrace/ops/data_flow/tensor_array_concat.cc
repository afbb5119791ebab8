// Concatenating the elements of a TensorArray to one tensor, and splitting a tensor into elements.
#include <numeric>

#include "millrace/graph/op_schema.h"
#include "millrace/ops/data_flow/rows.h"
#include "millrace/ops/data_flow/tensor_array.h"
#include "millrace/ops/data_flow/tensor_array_gradient.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Shape WithoutFirst(const Shape& shape) { return Shape(shape.dims().subspan(1)); }

class ConcatKernel : public Kernel {
 public:
  explicit ConcatKernel(KernelInit& init) { init.Attr("element_shape_except0", &rest_); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(TensorArray* const array, TensorArrayInput(ctx));
    const DType dtype = ctx.output_type(0);
    if (array->dtype() != dtype) {
      return InvalidArgument("TensorArray dtype is ", array->dtype(), " but Op requested dtype ", dtype, ".");
    }
    std::vector<Tensor> values;
    MR_RETURN_IF_ERROR(array->ReadAll(ctx.allocator(), &values));
    if (values.empty() && !rest_.IsFullyDefined()) {
      return Unimplemented("TensorArray has size zero, but element_shape_except0 ", rest_.ToString(),
                           " is not fully defined. Currently only static shapes are supported when concatenating "
                           "zero-size TensorArrays.");
    }
    const int64_t n = static_cast<int64_t>(values.size());
    Tensor lengths(DType::kInt64, Shape({n}));
    Shape rest = values.empty() ? rest_.AsShape() : Shape();
    int64_t total = 0;
    for (int64_t i = 0; i < n; ++i) {
      MR_RETURN_IF_ERROR(CheckElement(values, i));
      if (i == 0) rest = WithoutFirst(values[0].shape());
      lengths.data<int64_t>()[i] = values[i].dim(0);
      total += values[i].dim(0);
    }
    Shape::Dims dims(rest.dims().begin(), rest.dims().end());
    dims.insert(dims.begin(), total);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, shape));
    int64_t at = 0;
    for (const Tensor& value : values) {
      PutElements(value, output, at);
      at += value.num_elements();
    }
    ctx.SetOutput(1, std::move(lengths));
    return absl::OkStatus();
  }

 private:
  Status CheckElement(const std::vector<Tensor>& values, int64_t i) const {
    const Shape& shape = values[i].shape();
    if (shape.rank() == 0) {
      return InvalidArgument("Concat saw a scalar shape at index ", i,
                             " but requires at least vectors.  Did you mean to call pack?");
    }
    const Shape rest = WithoutFirst(shape);
    if (!rest_.IsCompatibleWith(rest)) {
      return InvalidArgument("TensorArray was passed element_shape_except0 ", rest_.ToString(), " but index ", i,
                             " has (excepting dimension 0) shape: ", rest.ToString(), " which does not match.");
    }
    if (i > 0 && rest != WithoutFirst(values[0].shape())) {
      return InvalidArgument("TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: ",
                             WithoutFirst(values[0].shape()).ToString(), " but index ", i,
                             " has (excepting dimension 0) shape: ", rest.ToString());
    }
    return absl::OkStatus();
  }

  PartialShape rest_;
};

class SplitKernel : public Kernel {
 public:
  explicit SplitKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(TensorArray* const array, TensorArrayInput(ctx));
    const Tensor& value = ctx.input(1);
    const Tensor& lengths = ctx.input(2);
    if (value.dtype() != array->dtype()) {
      return InvalidArgument("TensorArray dtype is ", array->dtype(), " but Op is trying to write dtype ",
                             value.dtype(), ".");
    }
    if (lengths.rank() != 1) {
      return InvalidArgument("Expected lengths to be a vector, received shape: ", lengths.shape().ToString());
    }
    if (value.rank() == 0) {
      return InvalidArgument("Expected value to be at least a vector, but received shape: []");
    }
    MR_ASSIGN_OR_RETURN(const std::vector<int64_t> begins, Begins(value, lengths.flat<int64_t>()));
    const int64_t n = lengths.num_elements();
    const int64_t size = array->size();
    if (size != n && !(array->dynamic_size() && n > size)) {
      return InvalidArgument("TensorArray's size is not equal to the size of lengths (", size, " vs. ", n,
                             "), and the TensorArray is not marked as dynamically resizeable");
    }
    MR_RETURN_IF_ERROR(array->WriteMany(
        n, [](int64_t i) { return i; },
        [&](int64_t i) {
          Tensor piece = value.Slice(begins[i], begins[i + 1]);
          return piece.IsAligned() ? piece : piece.Clone();
        }));
    ctx.SetOutput(0, ctx.input(3));
    return absl::OkStatus();
  }

 private:
  // The begin of each piece, and the end of the last one.
  static StatusOr<std::vector<int64_t>> Begins(const Tensor& value, absl::Span<const int64_t> lengths) {
    std::vector<int64_t> begins = {0};
    begins.reserve(lengths.size() + 1);
    const int64_t rows = value.dim(0);
    int64_t sum = 0;
    for (int64_t length : lengths) {
      if (length < 0) return InvalidArgument("lengths must not be negative, but one is ", length);
      if (__builtin_add_overflow(sum, length, &sum)) sum = std::numeric_limits<int64_t>::max();
      begins.push_back(sum);
    }
    if (sum == rows) return begins;
    return InvalidArgument("Expected sum of lengths to be equal to values.shape[0], but sum of lengths is ", sum,
                           " and value's shape is: ", value.shape().ToString());
  }
};

Status ConcatShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape rest, c.Attr<PartialShape>("element_shape_except0"));
  if (rest.known_rank()) {
    PartialShape shape({PartialShape::kUnknown});
    for (int64_t d : rest.dims()) shape.AddDim(d);
    c.set_output(0, shape);
  }
  c.set_output(1, PartialShape({PartialShape::kUnknown}));
  return absl::OkStatus();
}

Status SplitShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(2, 1).status());
  return ScalarShape(c);
}

Status ConcatGradient(GradientContext& c) {
  const GradientArray array = MakeGradientArray(c, c.input(0), c.input(1));
  c.set_input_grad(1, c.Op("TensorArraySplit" + array.version, {array.handle, c.grad(0), c.output(1), array.flow}));
  return c.status();
}

Status SplitGradient(GradientContext& c) {
  const Endpoint flow = c.grad(0);
  const GradientArray array = MakeGradientArray(c, c.input(0), flow);
  const PartialShape& shape = c.input(1).shape();
  const PartialShape rest = shape.rank() > 0 ? PartialShape(shape.dims().subspan(1)) : PartialShape();
  c.set_input_grad(1, c.Op("TensorArrayConcat" + array.version, {array.handle, array.flow},
                           {{"dtype", BaseType(c.input(1).dtype())}, {"element_shape_except0", rest}}));
  c.set_input_grad(3, flow);
  return c.status();
}

#define MR_ARRAY_CONCAT(name, handle)                                \
  MILLRACE_OP(name)                                                  \
      .Input("handle: " handle)                                      \
      .Input("flow_in: float")                                       \
      .Output("value: dtype")                                        \
      .Output("lengths: int64")                                      \
      .Attr("dtype: type")                                           \
      .Attr("element_shape_except0: shape = { unknown_rank: true }") \
      .Shape(ConcatShape)                                            \
      .Gradient(ConcatGradient)                                      \
      .Summary("Concatenates the elements of a TensorArray.")
MR_ARRAY_CONCAT(TensorArrayConcat, "Ref(string)");
MR_ARRAY_CONCAT(TensorArrayConcatV2, "string");
MR_ARRAY_CONCAT(TensorArrayConcatV3, "resource").Stateful();

#define MR_ARRAY_SPLIT(name, handle) \
  MILLRACE_OP(name)                  \
      .Input("handle: " handle)      \
      .Input("value: T")             \
      .Input("lengths: int64")       \
      .Input("flow_in: float")       \
      .Output("flow_out: float")     \
      .Attr("T: type")               \
      .Shape(SplitShape)             \
      .Gradient(SplitGradient)       \
      .Summary("Splits a tensor and writes the pieces to the elements of a TensorArray.")
MR_ARRAY_SPLIT(TensorArraySplit, "Ref(string)");
MR_ARRAY_SPLIT(TensorArraySplitV2, "string");
MR_ARRAY_SPLIT(TensorArraySplitV3, "resource").Stateful();

MILLRACE_KERNEL(TensorArrayConcat, kCpu, ConcatKernel);
MILLRACE_KERNEL(TensorArrayConcatV2, kCpu, ConcatKernel);
MILLRACE_KERNEL(TensorArrayConcatV3, kCpu, ConcatKernel);
MILLRACE_KERNEL(TensorArraySplit, kCpu, SplitKernel);
MILLRACE_KERNEL(TensorArraySplitV2, kCpu, SplitKernel);
MILLRACE_KERNEL(TensorArraySplitV3, kCpu, SplitKernel);

}  // namespace
}  // namespace millrace
