// Creating lists, and reading and writing single elements.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/list/list_shapes.h"
#include "millrace/ops/list/tensor_list.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/memory_budget.h"

namespace millrace {
namespace {

StatusOr<int32_t> ScalarInt(const KernelContext& ctx, int i, const char* name) {
  const Tensor& t = ctx.input(i);
  if (t.num_elements() != 1) return InvalidArgument(name, " must be a scalar, but it has shape ", t.shape().ToString());
  return t.scalar<int32_t>();
}

class ElementKernel : public Kernel {
 public:
  explicit ElementKernel(KernelInit& init) { init.Attr("element_dtype", &dtype_); }

 protected:
  DType dtype_ = DType::kInvalid;
};

class EmptyTensorListKernel : public ElementKernel {
 public:
  using ElementKernel::ElementKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int32_t limit, ScalarInt(ctx, 1, "max_num_elements"));
    MR_ASSIGN_OR_RETURN(PartialShape shape, ShapeFromTensor(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(TensorList* const list, NewList(ctx, 0, dtype_, std::move(shape)));
    list->max_num_elements = limit;
    return absl::OkStatus();
  }
};

class TensorListReserveKernel : public ElementKernel {
 public:
  using ElementKernel::ElementKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int32_t n, ScalarInt(ctx, 1, "num_elements"));
    if (n < 0) return InvalidArgument("The num_elements to reserve must be a non negative number, but got ", n);
    MR_RETURN_IF_ERROR(CheckRoom(n, sizeof(Tensor), "a list"));
    MR_ASSIGN_OR_RETURN(PartialShape shape, ShapeFromTensor(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(TensorList* const list, NewList(ctx, 0, dtype_, std::move(shape)));
    list->tensors.resize(n);
    return absl::OkStatus();
  }
};

class TensorListPushBackKernel : public ElementKernel {
 public:
  using ElementKernel::ElementKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0, dtype_));
    const Tensor element = ctx.input(1);
    if (!list->element_shape.IsCompatibleWith(element.shape())) {
      return InvalidArgument("Tried to append a tensor with incompatible shape to a list. Op element shape: ",
                             element.shape().ToString(), " list shape: ", list->element_shape.ToString());
    }
    if (list->max_num_elements >= 0 && static_cast<int64_t>(list->tensors.size()) >= list->max_num_elements) {
      return InvalidArgument("Tried to push item into a full list list size: ", list->tensors.size(),
                             " max_num_elements: ", list->max_num_elements);
    }
    MR_ASSIGN_OR_RETURN(TensorList* const mine, TakeList(ctx));
    mine->tensors.push_back(element);
    return absl::OkStatus();
  }
};

class TensorListPopBackKernel : public ElementKernel {
 public:
  using ElementKernel::ElementKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0, dtype_));
    if (list->tensors.empty()) return InvalidArgument("Trying to pop from an empty list.");
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeFromTensor(ctx.input(1)));
    MR_ASSIGN_OR_RETURN(Tensor element,
                        ListElement(ctx, *list, static_cast<int64_t>(list->tensors.size()) - 1, wanted));
    MR_ASSIGN_OR_RETURN(TensorList* const mine, TakeList(ctx));
    mine->tensors.pop_back();
    ctx.SetOutput(1, std::move(element));
    return absl::OkStatus();
  }
};

class TensorListGetItemKernel : public ElementKernel {
 public:
  using ElementKernel::ElementKernel;
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0, dtype_));
    MR_ASSIGN_OR_RETURN(const int32_t i, ScalarInt(ctx, 1, "index"));
    if (i < 0 || i >= static_cast<int64_t>(list->tensors.size())) {
      return InvalidArgument("Trying to access element ", i, " in a list with ", list->tensors.size(), " elements.");
    }
    MR_ASSIGN_OR_RETURN(const PartialShape wanted, ShapeFromTensor(ctx.input(2)));
    MR_ASSIGN_OR_RETURN(Tensor element, ListElement(ctx, *list, i, wanted));
    ctx.SetOutput(0, std::move(element));
    return absl::OkStatus();
  }
};

class TensorListSetItemKernel : public ElementKernel {
 public:
  explicit TensorListSetItemKernel(KernelInit& init) : ElementKernel(init) {
    init.Attr("resize_if_index_out_of_bounds", &resize_);
  }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0, dtype_));
    MR_ASSIGN_OR_RETURN(const int32_t i, ScalarInt(ctx, 1, "index"));
    const int64_t size = static_cast<int64_t>(list->tensors.size());
    if (i < 0 || (i >= size && !resize_)) {
      return InvalidArgument("Trying to modify element ", i, " in a list with ", size, " elements.");
    }
    const Tensor item = ctx.input(2);
    if (!list->element_shape.IsCompatibleWith(item.shape())) {
      return InvalidArgument("Tried to set a tensor with incompatible shape at a list index. Item element shape: ",
                             item.shape().ToString(), " list shape: ", list->element_shape.ToString());
    }
    if (i >= size) MR_RETURN_IF_ERROR(CheckRoom(int64_t{i} + 1, sizeof(Tensor), "a list"));
    MR_ASSIGN_OR_RETURN(TensorList* const mine, TakeList(ctx));
    if (i >= size) mine->tensors.resize(static_cast<size_t>(i) + 1);
    mine->tensors[i] = item;
    return absl::OkStatus();
  }

 private:
  bool resize_ = false;
};

class TensorListLengthKernel : public Kernel {
 public:
  explicit TensorListLengthKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0));
    const int64_t n = static_cast<int64_t>(list->tensors.size());
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<int32_t>() = static_cast<int32_t>(n);
    return absl::OkStatus();
  }
};

class TensorListElementShapeKernel : public Kernel {
 public:
  explicit TensorListElementShapeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0));
    const PartialShape& shape = list->element_shape;
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape.known_rank() ? Shape({shape.rank()}) : Shape()));
    const int64_t n = out->num_elements();
    for (int64_t i = 0; i < n; ++i) {
      const int64_t d = shape.known_rank() ? shape.dim(static_cast<int>(i)) : -1;
      if (out->dtype() == DType::kInt32) {
        out->data<int32_t>()[i] = static_cast<int32_t>(d);
      } else {
        out->data<int64_t>()[i] = d;
      }
    }
    return absl::OkStatus();
  }
};

class TensorListResizeKernel : public Kernel {
 public:
  explicit TensorListResizeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const int32_t n, ScalarInt(ctx, 1, "size"));
    if (n < 0) return InvalidArgument("TensorListSlice expects size to be non-negative. Got: ", n);
    MR_RETURN_IF_ERROR(CheckRoom(n, sizeof(Tensor), "a list"));
    MR_ASSIGN_OR_RETURN(TensorList* const mine, TakeList(ctx));
    mine->tensors.resize(n);
    return absl::OkStatus();
  }
};

Status PopBackShape(ShapeContext& c) {
  c.set_output(0, PartialShape::Scalar());
  c.set_output(1, ElementShapeInput(c, 1));
  return absl::OkStatus();
}

Status GetItemShape(ShapeContext& c) {
  c.set_output(0, ElementShapeInput(c, 2));
  return absl::OkStatus();
}

Endpoint Length(GradientContext& c, Endpoint list) { return c.Op("TensorListLength", {list}); }
Endpoint ElementShapeOf(GradientContext& c, Endpoint list) {
  return c.Op("TensorListElementShape", {list}, {{"shape_type", DType::kInt32}});
}

Status PushBackGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  Node* pop = c.AddNode("TensorListPopBack", {c.grad(), c.Shape(c.input(1))}, {{"element_dtype", dtype}});
  if (pop == nullptr) return c.status();
  c.set_input_grad(0, pop->output(0));
  c.set_input_grad(1, pop->output(1));
  return c.status();
}

Status PopBackGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  c.set_input_grad(0, c.Op("TensorListPushBack", {c.grad(0), c.grad(1)}, {{"element_dtype", dtype}}));
  return c.status();
}

Status GetItemGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  const Endpoint zeros =
      c.Op("TensorListReserve", {ElementShapeOf(c, c.input(0)), Length(c, c.input(0))}, {{"element_dtype", dtype}});
  c.set_input_grad(0, c.Op("TensorListSetItem", {zeros, c.input(1), c.grad()}, {{"element_dtype", dtype}}));
  return c.status();
}

Status SetItemGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  const Endpoint list = c.grad();
  c.set_input_grad(2, c.Op("TensorListGetItem", {list, c.input(1), c.Shape(c.input(2))}, {{"element_dtype", dtype}}));
  const Endpoint rest =
      c.Op("TensorListSetItem", {list, c.input(1), c.ZerosLike(c.input(2))}, {{"element_dtype", dtype}});
  // An element beyond the end was added by the op, so it is not part of the input list.
  c.set_input_grad(0, c.AttrOr<bool>("resize_if_index_out_of_bounds", false)
                          ? c.Op("TensorListResize", {rest, Length(c, c.input(0))})
                          : rest);
  return c.status();
}

Status ResizeGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("TensorListResize", {c.grad(), Length(c, c.input(0))}));
  return c.status();
}

MILLRACE_OP(EmptyTensorList)
    .Input("element_shape: shape_type")
    .Input("max_num_elements: int32")
    .Output("handle: variant")
    .Attr("element_dtype: type")
    .Attr("shape_type: {int32, int64}")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("An empty list.");
MILLRACE_OP(TensorListReserve)
    .Input("element_shape: shape_type")
    .Input("num_elements: int32")
    .Output("handle: variant")
    .Attr("element_dtype: type")
    .Attr("shape_type: {int32, int64}")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A list of uninitialized elements.");
MILLRACE_OP(TensorListPushBack)
    .Input("input_handle: variant")
    .Input("tensor: element_dtype")
    .Output("output_handle: variant")
    .Attr("element_dtype: type")
    .Shape(ScalarShape)
    .Gradient(PushBackGradient)
    .Summary("Appends an element.");
MILLRACE_OP(TensorListPopBack)
    .Input("input_handle: variant")
    .Input("element_shape: int32")
    .Output("output_handle: variant")
    .Output("tensor: element_dtype")
    .Attr("element_dtype: type")
    .Shape(PopBackShape)
    .Gradient(PopBackGradient)
    .Summary("The list without its last element, and that element.");
MILLRACE_OP(TensorListGetItem)
    .Input("input_handle: variant")
    .Input("index: int32")
    .Input("element_shape: Tshape")
    .Output("item: element_dtype")
    .Attr("element_dtype: type")
    .Attr("Tshape: {int32, int64} = int32")
    .Shape(GetItemShape)
    .Gradient(GetItemGradient)
    .Summary("The element at index.");
MILLRACE_OP(TensorListSetItem)
    .Input("input_handle: variant")
    .Input("index: int32")
    .Input("item: element_dtype")
    .Output("output_handle: variant")
    .Attr("element_dtype: type")
    .Attr("resize_if_index_out_of_bounds: bool = false")
    .Shape(ScalarShape)
    .Gradient(SetItemGradient)
    .Summary("Replaces the element at index.");
MILLRACE_OP(TensorListLength)
    .Input("input_handle: variant")
    .Output("length: int32")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The number of elements.");
MILLRACE_OP(TensorListElementShape)
    .Input("input_handle: variant")
    .Output("element_shape: shape_type")
    .Attr("shape_type: {int32, int64}")
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Summary("The shape of the elements; -1 for unknown.");
MILLRACE_OP(TensorListResize)
    .Input("input_handle: variant")
    .Input("size: int32")
    .Output("output_handle: variant")
    .Shape(ScalarShape)
    .Gradient(ResizeGradient)
    .Summary("Truncates the list or extends it by uninitialized elements.");

MILLRACE_KERNEL(EmptyTensorList, kCpu, EmptyTensorListKernel);
MILLRACE_KERNEL(TensorListReserve, kCpu, TensorListReserveKernel);
MILLRACE_KERNEL(TensorListPushBack, kCpu, TensorListPushBackKernel);
MILLRACE_KERNEL(TensorListPopBack, kCpu, TensorListPopBackKernel);
MILLRACE_KERNEL(TensorListGetItem, kCpu, TensorListGetItemKernel);
MILLRACE_KERNEL(TensorListSetItem, kCpu, TensorListSetItemKernel);
MILLRACE_KERNEL(TensorListLength, kCpu, TensorListLengthKernel);
MILLRACE_KERNEL(TensorListElementShape, kCpu, TensorListElementShapeKernel);
MILLRACE_KERNEL(TensorListResize, kCpu, TensorListResizeKernel);

}  // namespace
}  // namespace millrace
