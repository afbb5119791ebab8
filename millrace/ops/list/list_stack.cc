// Conversion between lists and tensors with one more dimension: Stack, FromTensor, Gather, Scatter.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/list/list_shapes.h"
#include "millrace/ops/list/tensor_list.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Stacks elements list[index(k)] for k in [0, n) as output 0.
template <typename Index>
Status StackElements(KernelContext& ctx, const TensorList& list, int64_t n, const PartialShape& wanted, Index index) {
  MR_ASSIGN_OR_RETURN(PartialShape partial, CommonShape(list, wanted, false));
  for (int64_t k = 0; k < n && !partial.IsFullyDefined(); ++k) {
    const Tensor& t = list.tensors[index(k)];
    if (!t.IsInitialized()) continue;
    StatusOr<PartialShape> merged = partial.MergeWith(t.shape());
    if (!merged.ok()) return WithPrefix("Tried to stack list elements of different shapes: ", merged.status());
    partial = *merged;
  }
  if (!partial.IsFullyDefined()) {
    return InvalidArgument(n == 0 ? "Tried to stack elements of an empty list with non-fully-defined element_shape: "
                                  : "Tried to stack list which only contains uninitialized tensors and has a "
                                    "non-fully-defined element_shape: ",
                           partial.ToString(),
                           " (Tried to gather uninitialized tensors from a list with "
                           "non-fully-defined element_shape)");
  }
  const Shape element = partial.AsShape();
  Shape::Dims dims = {n};
  for (const int64_t d : element.dims()) dims.push_back(d);
  MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  for (int64_t k = 0; k < n; ++k) {
    const Tensor& t = list.tensors[index(k)];
    if (t.IsInitialized() && t.shape() != element) {
      return WithPrefix(absl::StrCat("Tried to stack list elements of different shapes: element ", index(k), ": "),
                        PartialShape(element).MergeWith(t.shape()).status());
    }
  }
  MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
  Tensor zeros;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor* t = &list.tensors[index(k)];
    if (!t->IsInitialized()) {
      if (!zeros.IsInitialized()) {
        MR_ASSIGN_OR_RETURN(zeros, Zeros(ctx, list.element_dtype, element));
      }
      t = &zeros;
    }
    CopyInto(*t, out, k * element.num_elements());
  }
  return absl::OkStatus();
}

class TensorListStackKernel : public Kernel {
 public:
  explicit TensorListStackKernel(KernelInit& init) {
    init.Attr("element_dtype", &dtype_);
    init.Attr("num_elements", &num_elements_);
  }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0, dtype_));
    const int64_t n = static_cast<int64_t>(list->tensors.size());
    if (num_elements_ != -1 && n != num_elements_) {
      return InvalidArgument("Operation expected a list with ", num_elements_, " elements but got a list with ", n,
                             " elements.");
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeFromTensor(ctx.input(1)));
    return StackElements(ctx, *list, n, wanted, [](int64_t k) { return k; });
  }

 private:
  DType dtype_ = DType::kInvalid;
  int64_t num_elements_ = -1;
};

class TensorListGatherKernel : public Kernel {
 public:
  explicit TensorListGatherKernel(KernelInit& init) { init.Attr("element_dtype", &dtype_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0, dtype_));
    const Tensor& indices = ctx.input(1);
    if (indices.rank() != 1)
      return InvalidArgument("Expected indices to be a vector, but received shape ", indices.shape().ToString());
    for (const int32_t i : indices.flat<int32_t>()) {
      if (i < 0 || i >= static_cast<int64_t>(list->tensors.size())) {
        return InvalidArgument("Trying to gather element ", i, " in a list with ", list->tensors.size(), " elements.");
      }
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeFromTensor(ctx.input(2)));
    const int32_t* at = indices.data<int32_t>();
    return StackElements(ctx, *list, indices.num_elements(), wanted, [at](int64_t k) { return at[k]; });
  }

 private:
  DType dtype_ = DType::kInvalid;
};

class TensorListFromTensorKernel : public Kernel {
 public:
  explicit TensorListFromTensorKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& t = ctx.input(0);
    if (t.rank() < 1) return InvalidArgument("Tensor must be at least a vector, but saw shape: ", t.shape().ToString());
    MR_ASSIGN_OR_RETURN(PartialShape shape, ShapeFromTensor(ctx.input(1)));
    const Shape element(t.shape().dims().subspan(1));
    if (!shape.IsCompatibleWith(element)) {
      return InvalidArgument("Specified a list with shape ", shape.ToString(), " from a tensor with shape ",
                             element.ToString());
    }
    MR_ASSIGN_OR_RETURN(TensorList* const list, NewList(ctx, 0, t.dtype(), std::move(shape)));
    list->tensors.reserve(t.dim(0));
    for (int64_t i = 0; i < t.dim(0); ++i) list->tensors.push_back(t.Row(i));
    return absl::OkStatus();
  }
};

// Checks the arguments of a scatter and returns the number of elements that the list must have.
StatusOr<int64_t> CheckScatter(const Tensor& t, const Tensor& indices, int64_t size) {
  if (indices.rank() != 1)
    return InvalidArgument("Expected indices to be a vector, but received shape ", indices.shape().ToString());
  if (t.rank() < 1) return InvalidArgument("Tensor must be at least a vector, but saw shape: ", t.shape().ToString());
  if (indices.num_elements() != t.dim(0)) {
    return InvalidArgument("Invalid number of rows in input tensor. Expected: ", indices.num_elements(),
                           " Actual: ", t.dim(0));
  }
  int64_t highest = -1;
  for (const int32_t i : indices.flat<int32_t>()) {
    if (i < 0) return InvalidArgument("Indices in TensorListScatter must all be non-negative.");
    highest = std::max<int64_t>(highest, i);
    if (size >= 0 && i >= size) {
      return InvalidArgument("TensorListScatter: Trying to scatter at index ", i, " in list with size ", size);
    }
  }
  return std::max(highest + 1, size);
}

void Scatter(const Tensor& t, const Tensor& indices, TensorList* list) {
  for (int64_t k = 0; k < t.dim(0); ++k) list->tensors[indices.data<int32_t>()[k]] = t.Row(k);
}

// With or without the number of elements.
class TensorListScatterKernel : public Kernel {
 public:
  explicit TensorListScatterKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& t = ctx.input(0);
    const Tensor& indices = ctx.input(1);
    int64_t size = -1;
    if (ctx.num_inputs() > 3) {
      if (ctx.input(3).num_elements() != 1) return InvalidArgument("num_elements must be a scalar");
      size = ctx.input(3).scalar<int32_t>();
      if (size < -1) return InvalidArgument("TensorListScatter expects num_elements >= -1, found: ", size);
    }
    MR_ASSIGN_OR_RETURN(const int64_t total, CheckScatter(t, indices, size));
    MR_ASSIGN_OR_RETURN(PartialShape shape, ShapeFromTensor(ctx.input(2)));
    const Shape element(t.shape().dims().subspan(1));
    if (!shape.IsCompatibleWith(element)) {
      return InvalidArgument("Specified a list with shape ", shape.ToString(), " from a tensor with shape ",
                             element.ToString());
    }
    MR_ASSIGN_OR_RETURN(TensorList* const list, NewList(ctx, 0, t.dtype(), std::move(shape)));
    list->tensors.resize(total);
    Scatter(t, indices, list);
    return absl::OkStatus();
  }
};

class TensorListScatterIntoExistingListKernel : public Kernel {
 public:
  explicit TensorListScatterIntoExistingListKernel(KernelInit& init) { init.Attr("element_dtype", &dtype_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0, dtype_));
    const Tensor& t = ctx.input(1);
    const Tensor& indices = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const int64_t total, CheckScatter(t, indices, -1));
    const Shape element(t.shape().dims().subspan(1));
    if (!list->element_shape.IsCompatibleWith(element)) {
      return InvalidArgument("Tried to scatter tensors of shape ", element.ToString(),
                             " into a list whose elements have shape ", list->element_shape.ToString());
    }
    MR_ASSIGN_OR_RETURN(TensorList* const mine, TakeList(ctx));
    if (total > static_cast<int64_t>(mine->tensors.size())) mine->tensors.resize(total);
    Scatter(t, indices, mine);
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
};

Status StackShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t n, c.Attr<int64_t>("num_elements"));
  c.set_output(0, Rows(n < 0 ? PartialShape::kUnknown : n, ElementShapeInput(c, 1)));
  return absl::OkStatus();
}

Status GatherShape(ShapeContext& c) {
  const bool known = c.input(1).known_rank() && c.input(1).rank() == 1;
  c.set_output(0, Rows(known ? c.input(1).dim(0) : PartialShape::kUnknown, ElementShapeInput(c, 2)));
  return absl::OkStatus();
}

// The shape of a row of x, as a tensor.
Endpoint RowShape(GradientContext& c, Endpoint x) { return c.Op("Slice", {c.Shape(x), c.Ints({1}), c.Ints({-1})}); }

Status StackGradient(GradientContext& c) {
  const Endpoint grad = c.grad();
  c.set_input_grad(0, c.Op("TensorListFromTensor", {grad, RowShape(c, grad)}));
  return c.status();
}

Status FromTensorGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  const PartialShape& shape = c.input(0).shape();
  const int64_t n = shape.known_rank() && shape.rank() > 0 ? shape.dim(0) : -1;
  c.set_input_grad(
      0, c.Op("TensorListStack", {c.grad(), RowShape(c, c.input(0))}, {{"element_dtype", dtype}, {"num_elements", n}}));
  return c.status();
}

Status GatherGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  const Endpoint shape = c.Op("TensorListElementShape", {c.input(0)}, {{"shape_type", DType::kInt32}});
  const Endpoint zeros =
      c.Op("TensorListReserve", {shape, c.Op("TensorListLength", {c.input(0)})}, {{"element_dtype", dtype}});
  c.set_input_grad(
      0, c.Op("TensorListScatterIntoExistingList", {zeros, c.grad(), c.input(1)}, {{"element_dtype", dtype}}));
  return c.status();
}

Status ScatterGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  c.set_input_grad(
      0, c.Op("TensorListGather", {c.grad(), c.input(1), RowShape(c, c.input(0))}, {{"element_dtype", dtype}}));
  return c.status();
}

Status ScatterIntoGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  c.set_input_grad(
      1, c.Op("TensorListGather", {c.grad(), c.input(2), RowShape(c, c.input(1))}, {{"element_dtype", dtype}}));
  c.set_input_grad(0, c.Op("TensorListScatterIntoExistingList", {c.grad(), c.ZerosLike(c.input(1)), c.input(2)},
                           {{"element_dtype", dtype}}));
  return c.status();
}

MILLRACE_OP(TensorListStack)
    .Input("input_handle: variant")
    .Input("element_shape: int32")
    .Output("tensor: element_dtype")
    .Attr("element_dtype: type")
    .Attr("num_elements: int = -1")
    .Shape(StackShape)
    .Gradient(StackGradient)
    .Summary("Stacks all elements.");
MILLRACE_OP(TensorListFromTensor)
    .Input("tensor: element_dtype")
    .Input("element_shape: shape_type")
    .Output("output_handle: variant")
    .Attr("element_dtype: type")
    .Attr("shape_type: {int32, int64}")
    .Shape(ScalarShape)
    .Gradient(FromTensorGradient)
    .Summary("The rows of a tensor as a list.");
MILLRACE_OP(TensorListGather)
    .Input("input_handle: variant")
    .Input("indices: int32")
    .Input("element_shape: int32")
    .Output("values: element_dtype")
    .Attr("element_dtype: type")
    .Shape(GatherShape)
    .Gradient(GatherGradient)
    .Summary("Stacks the elements at indices.");
MILLRACE_OP(TensorListScatter)
    .Input("tensor: element_dtype")
    .Input("indices: int32")
    .Input("element_shape: shape_type")
    .Output("output_handle: variant")
    .Attr("element_dtype: type")
    .Attr("shape_type: {int32, int64}")
    .Shape(ScalarShape)
    .Gradient(ScatterGradient)
    .Summary("A list with the rows of a tensor at indices.");
MILLRACE_OP(TensorListScatterV2)
    .Input("tensor: element_dtype")
    .Input("indices: int32")
    .Input("element_shape: shape_type")
    .Input("num_elements: int32")
    .Output("output_handle: variant")
    .Attr("element_dtype: type")
    .Attr("shape_type: {int32, int64}")
    .Shape(ScalarShape)
    .Gradient(ScatterGradient)
    .Summary("A list of num_elements with the rows of a tensor at indices.");
MILLRACE_OP(TensorListScatterIntoExistingList)
    .Input("input_handle: variant")
    .Input("tensor: element_dtype")
    .Input("indices: int32")
    .Output("output_handle: variant")
    .Attr("element_dtype: type")
    .Shape(ScalarShape)
    .Gradient(ScatterIntoGradient)
    .Summary("The list with the rows of a tensor at indices.");

MILLRACE_KERNEL(TensorListStack, kCpu, TensorListStackKernel);
MILLRACE_KERNEL(TensorListFromTensor, kCpu, TensorListFromTensorKernel);
MILLRACE_KERNEL(TensorListGather, kCpu, TensorListGatherKernel);
MILLRACE_KERNEL(TensorListScatter, kCpu, TensorListScatterKernel);
MILLRACE_KERNEL(TensorListScatterV2, kCpu, TensorListScatterKernel);
MILLRACE_KERNEL(TensorListScatterIntoExistingList, kCpu, TensorListScatterIntoExistingListKernel);

}  // namespace
}  // namespace millrace
