// Concatenating lists to one tensor, splitting a tensor into a list, and concatenating lists.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/list/list_shapes.h"
#include "millrace/ops/list/tensor_list.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Bytes that one thread copies at a time.
constexpr int64_t kPieceBytes = 1 << 17;

// TensorListConcat and its V2, which specifies the lengths of unset elements.
class TensorListConcatKernel : public Kernel {
 public:
  explicit TensorListConcatKernel(KernelInit& init) {
    init.Attr("element_dtype", &dtype_);
    if (init.node().is_type("TensorListConcat")) init.Attr("element_shape", &shape_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, 0, dtype_));
    PartialShape wanted = shape_;
    if (ctx.num_inputs() > 1) {
      MR_ASSIGN_OR_RETURN(wanted, ShapeFromTensor(ctx.input(1)));
    }
    Layout layout;
    MR_RETURN_IF_ERROR(FindRows(*list, wanted, &layout));
    MR_RETURN_IF_ERROR(FindLengths(ctx, *list, wanted.known_rank(), &layout));
    return Concat(ctx, *list, layout);
  }

 private:
  // Where the elements go.
  struct Layout {
    PartialShape rows;             // of an element, as far as it is known
    PartialShape tail;             // all dimensions of an element except the first
    std::vector<int64_t> lengths;  // the first dimension of each element
    int64_t total = 0;
  };

  static Status FindRows(const TensorList& list, const PartialShape& wanted, Layout* layout) {
    PartialShape& rows = layout->rows;
    rows = wanted;
    if (!wanted.known_rank() && list.element_shape.known_rank()) rows = list.element_shape;
    if (rows.known_rank() && rows.rank() < 1)
      return InvalidArgument("Concat requires elements to be at least vectors, found scalars instead.",
                             " element_shape must not be empty.");
    if (rows.known_rank()) layout->tail = PartialShape(rows.dims().subspan(1));
    if (list.element_shape.known_rank() && list.element_shape.rank() > 0) {
      StatusOr<PartialShape> merged = layout->tail.MergeWith(PartialShape(list.element_shape.dims().subspan(1)));
      if (!merged.ok()) return Differ(rows, list.element_shape);
      layout->tail = *merged;
    }
    return absl::OkStatus();
  }

  // `same_length`: all elements must be as long as the rows, where that is known.
  static Status FindLengths(KernelContext& ctx, const TensorList& list, bool same_length, Layout* layout) {
    const int64_t n = static_cast<int64_t>(list.tensors.size());
    const Tensor* leading = ctx.num_inputs() > 2 && ctx.input(2).num_elements() > 0 ? &ctx.input(2) : nullptr;
    if (leading != nullptr && (leading->rank() != 1 || leading->num_elements() != n)) {
      return InvalidArgument("leading_dims has shape ", leading->shape().ToString(), ", but the list has ", n,
                             " elements");
    }
    const PartialShape& rows = layout->rows;
    const int64_t length_of_rows = rows.known_rank() ? rows.dim(0) : -1;
    layout->lengths.resize(n);
    for (int64_t i = 0; i < n; ++i) {
      const Tensor& t = list.tensors[i];
      int64_t& length = layout->lengths[i];
      if (t.IsInitialized()) {
        if (t.rank() < 1)
          return InvalidArgument("Concat saw a scalar shape at index ", i, " but requires at least vectors.");
        StatusOr<PartialShape> merged = layout->tail.MergeWith(PartialShape(t.shape().dims().subspan(1)));
        if (!merged.ok()) return WithPrefix("Tried to concat tensors with unequal shapes: ", merged.status());
        layout->tail = *merged;
        length = t.dim(0);
        if (length_of_rows >= 0 && same_length && length_of_rows != length) return Differ(rows, t.shape());
      } else if (leading != nullptr && leading->data<int64_t>()[i] >= 0) {
        length = leading->data<int64_t>()[i];
      } else if (length_of_rows >= 0) {
        length = length_of_rows;
      } else {
        length = CommonLength(list);
        if (length < 0 && !layout->tail.IsFullyDefined()) break;
        if (length < 0) {
          return InvalidArgument("List contains uninitialized tensor at index ", i, " but leading_dims has only ",
                                 leading == nullptr ? 0 : leading->num_elements(), " elements.");
        }
      }
      if (length > kMaxListElements || (layout->total += length) > (int64_t{1} << 40)) {
        return InvalidArgument("the lengths of the elements add up to too much");
      }
    }
    if (layout->tail.IsFullyDefined()) return absl::OkStatus();
    if (n > 0) {
      return InvalidArgument(
          "Trying to concat list with only uninitialized tensors but element_shape_except_first_dim is not fully "
          "defined: ",
          layout->tail.ToString());
    }
    return InvalidArgument(
        "All except the first dimension must be fully defined when concating an empty tensor list. element_shape: ",
        rows.ToString());
  }

  // The first dimension that all elements which are set have; -1 if there is none.
  static int64_t CommonLength(const TensorList& list) {
    int64_t length = -1;
    for (const Tensor& t : list.tensors) {
      if (!t.IsInitialized()) continue;
      if (t.rank() < 1 || (length >= 0 && t.dim(0) != length)) return -1;
      length = t.dim(0);
    }
    return length;
  }

  Status Concat(KernelContext& ctx, const TensorList& list, const Layout& layout) const {
    const int64_t n = static_cast<int64_t>(list.tensors.size());
    Shape::Dims dims = {layout.total};
    for (const int64_t d : layout.tail.dims()) dims.push_back(d);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    MR_ASSIGN_OR_RETURN(Tensor* const out_lengths, ctx.AllocateOutput(1, Shape({n})));
    std::vector<Tensor> parts(n);
    std::vector<int64_t> begins(n);
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
      out_lengths->data<int64_t>()[i] = layout.lengths[i];
      parts[i] = list.tensors[i];
      if (!parts[i].IsInitialized()) {
        dims[0] = layout.lengths[i];
        MR_ASSIGN_OR_RETURN(parts[i], Zeros(ctx, dtype_, Shape(dims)));
      }
      begins[i] = at;
      at += parts[i].num_elements();
    }
    const int64_t part_bytes = static_cast<int64_t>(out->TotalBytes()) / std::max<int64_t>(n, 1);
    ctx.ParallelFor(n, std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(part_bytes, 1)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) CopyInto(parts[i], out, begins[i]);
                    });
    return absl::OkStatus();
  }

  static Status Differ(const PartialShape& a, const PartialShape& b) {
    return InvalidArgument("Tried to concat tensors with unequal shapes: ", a.ToString(), " vs ", b.ToString());
  }

  DType dtype_ = DType::kInvalid;
  PartialShape shape_;
};

class TensorListSplitKernel : public Kernel {
 public:
  explicit TensorListSplitKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& t = ctx.input(0);
    const Tensor& lengths = ctx.input(2);
    if (t.rank() < 1) return InvalidArgument("Tensor must be at least a vector, but saw shape: ", t.shape().ToString());
    if (lengths.rank() != 1)
      return InvalidArgument("Expected lengths to be a vector, received shape: ", lengths.shape().ToString());
    MR_ASSIGN_OR_RETURN(PartialShape shape, ShapeFromTensor(ctx.input(1)));
    if (shape.known_rank() && shape.rank() < 1) {
      return InvalidArgument("TensorListSplit requires element_shape to be at least of rank 1, but saw: ",
                             shape.ToString());
    }
    if (shape.known_rank() &&
        !PartialShape(shape.dims().subspan(1)).IsCompatibleWith(PartialShape(t.shape().dims().subspan(1)))) {
      return InvalidArgument("tensor shape ", t.shape().ToString(), " is not compatible with element_shape ",
                             shape.ToString());
    }
    int64_t total = 0;
    for (const int64_t n : lengths.flat<int64_t>()) {
      if (n < 0) return InvalidArgument("Invalid value in lengths: ", n);
      if (n > t.dim(0) - total) {
        return InvalidArgument("Attempting to slice [", total, ", ",
                               static_cast<double>(total) + static_cast<double>(n), "] from tensor with length ",
                               t.dim(0));
      }
      Shape::Dims dims(t.shape().dims().begin(), t.shape().dims().end());
      dims[0] = n;
      if (!shape.IsCompatibleWith(Shape(dims))) {
        return InvalidArgument("tensor shape ", t.shape().ToString(), " cut to ", n,
                               " is not compatible with element_shape ", shape.ToString());
      }
      total += n;
    }
    if (total != t.dim(0)) {
      return InvalidArgument("Unused values in tensor. Length of tensor: ", t.dim(0), " Values used: ", total);
    }
    MR_ASSIGN_OR_RETURN(TensorList* const list, NewList(ctx, 0, t.dtype(), std::move(shape)));
    int64_t at = 0;
    for (const int64_t n : lengths.flat<int64_t>()) {
      list->tensors.push_back(t.Slice(at, at + n));
      at += n;
    }
    return absl::OkStatus();
  }
};

// Element by element over tensors of lists.
class TensorListConcatListsKernel : public Kernel {
 public:
  explicit TensorListConcatListsKernel(KernelInit& init) { init.Attr("element_dtype", &dtype_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& a = ctx.input(0);
    const Tensor& b = ctx.input(1);
    if (a.shape() != b.shape()) {
      return InvalidArgument("input_a and input_b must have the same shapes, but saw: ", a.shape().ToString(), " vs. ",
                             b.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, a.shape()));
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      const TensorList* x = a.data<Variant>()[i].Get<TensorList>();
      const TensorList* y = b.data<Variant>()[i].Get<TensorList>();
      if (x == nullptr || y == nullptr)
        return InvalidArgument("input_", x == nullptr ? "a" : "b", "[", i, "] is not a list");
      if (x->element_dtype != dtype_ || y->element_dtype != dtype_) {
        return InvalidArgument("input_a[", i, "] and input_b[", i, "] hold ", DTypeName(x->element_dtype), " and ",
                               DTypeName(y->element_dtype), ", not ", DTypeName(dtype_));
      }
      StatusOr<PartialShape> shape = x->element_shape.MergeWith(y->element_shape);
      if (!shape.ok()) {
        return InvalidArgument("input_a and input_b TensorList element shapes are not identical at index ", i, ": ",
                               x->element_shape.ToString(), " vs. ", y->element_shape.ToString());
      }
      RefPtr<TensorList> joined = x->Like();
      joined->element_shape = *shape;
      joined->tensors = x->tensors;
      joined->tensors.insert(joined->tensors.end(), y->tensors.begin(), y->tensors.end());
      out->data<Variant>()[i] = Variant(std::move(joined));
    }
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
};

class TensorListPushBackBatchKernel : public Kernel {
 public:
  explicit TensorListPushBackBatchKernel(KernelInit& init) { init.Attr("element_dtype", &dtype_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& handles = ctx.input(0);
    const Tensor& t = ctx.input(1);
    if (t.rank() < 1)
      return InvalidArgument("Expected tensor to be at least a vector, but saw shape: ", t.shape().ToString());
    if (handles.rank() != 1)
      return InvalidArgument("Expected input_handles to be a vector, but saw shape: ", handles.shape().ToString());
    if (handles.dim(0) != t.dim(0)) {
      return InvalidArgument("Expected tensor.shape[0] == input_handles.size, but saw ", t.dim(0), " vs. ",
                             handles.dim(0));
    }
    for (int64_t i = 0; i < handles.dim(0); ++i) {
      const TensorList* list = handles.data<Variant>()[i].Get<TensorList>();
      if (list == nullptr)
        return InvalidArgument("Input handle at index ", i, " is not a list. Saw: '",
                               handles.data<Variant>()[i].DebugString(), "'");
      if (list->element_dtype != dtype_) {
        return InvalidArgument("Invalid data type at index ", i, "; op elements ", DTypeName(dtype_),
                               " but list elements ", DTypeName(list->element_dtype));
      }
      if (!list->element_shape.IsCompatibleWith(Shape(t.shape().dims().subspan(1)))) {
        return InvalidArgument("Tried to append a tensor with incompatible shape to a list at index ", i,
                               ". Op element shape: ", Shape(t.shape().dims().subspan(1)).ToString(),
                               " list shape: ", list->element_shape.ToString());
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, handles.shape()));
    for (int64_t i = 0; i < handles.dim(0); ++i) {
      const TensorList* list = handles.data<Variant>()[i].Get<TensorList>();
      RefPtr<TensorList> longer = list->Like();
      longer->tensors = list->tensors;
      longer->tensors.push_back(t.Row(i));
      out->data<Variant>()[i] = Variant(std::move(longer));
    }
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
};

Status ConcatShape(ShapeContext& c) {
  PartialShape shape;
  if (c.num_inputs() > 1) {
    shape = ElementShapeInput(c, 1);
  } else {
    MR_ASSIGN_OR_RETURN(shape, c.Attr<PartialShape>("element_shape"));
  }
  if (shape.known_rank() && shape.rank() > 0) {
    shape.set_dim(0, PartialShape::kUnknown);
  } else {
    shape = PartialShape();
  }
  c.set_output(0, shape);
  c.set_output(1, PartialShape({PartialShape::kUnknown}));
  return absl::OkStatus();
}

Status ConcatGradient(GradientContext& c) {
  const Endpoint grad = c.grad(0);
  // Any length, and the shape of the rest.
  const Endpoint rest = c.Op("Slice", {c.Shape(grad), c.Ints({1}), c.Ints({-1})});
  const Endpoint shape = c.Op("ConcatV2", {c.Ints({-1}), rest, c.Scalar<int32_t>(0)});
  c.set_input_grad(0, c.Op("TensorListSplit", {grad, shape, c.output(1)}));
  return c.status();
}

Status SplitGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const DType dtype, c.Attr<DType>("element_dtype"));
  const Endpoint rest = c.Op("Slice", {c.Shape(c.input(0)), c.Ints({1}), c.Ints({-1})});
  const Endpoint shape = c.Op("ConcatV2", {c.Ints({-1}), rest, c.Scalar<int32_t>(0)});
  c.set_input_grad(0, c.Op("TensorListConcatV2", {c.grad(), shape, c.input(2)}, {{"element_dtype", dtype}}));
  return c.status();
}

MILLRACE_OP(TensorListConcat)
    .Input("input_handle: variant")
    .Output("tensor: element_dtype")
    .Output("lengths: int64")
    .Attr("element_dtype: type")
    .Attr("element_shape: shape = { unknown_rank: true }")
    .Shape(ConcatShape)
    .Gradient(ConcatGradient)
    .Summary("Concatenates all elements, and returns their lengths.");
MILLRACE_OP(TensorListConcatV2)
    .Input("input_handle: variant")
    .Input("element_shape: shape_type")
    .Input("leading_dims: int64")
    .Output("tensor: element_dtype")
    .Output("lengths: int64")
    .Attr("element_dtype: type")
    .Attr("shape_type: {int32, int64}")
    .Shape(ConcatShape)
    .Gradient(ConcatGradient)
    .Summary("Concatenates all elements, and returns their lengths.");
MILLRACE_OP(TensorListSplit)
    .Input("tensor: element_dtype")
    .Input("element_shape: shape_type")
    .Input("lengths: int64")
    .Output("output_handle: variant")
    .Attr("element_dtype: type")
    .Attr("shape_type: {int32, int64}")
    .Shape(ScalarShape)
    .Gradient(SplitGradient)
    .Summary("Splits a tensor along its first dimension into a list.");
MILLRACE_OP(TensorListConcatLists)
    .Input("input_a: variant")
    .Input("input_b: variant")
    .Output("output: variant")
    .Attr("element_dtype: type")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Concatenates two lists.");
MILLRACE_OP(TensorListPushBackBatch)
    .Input("input_handles: variant")
    .Input("tensor: element_dtype")
    .Output("output_handles: variant")
    .Attr("element_dtype: type")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Appends one element to each of several lists.");

MILLRACE_KERNEL(TensorListConcat, kCpu, TensorListConcatKernel);
MILLRACE_KERNEL(TensorListConcatV2, kCpu, TensorListConcatKernel);
MILLRACE_KERNEL(TensorListSplit, kCpu, TensorListSplitKernel);
MILLRACE_KERNEL(TensorListConcatLists, kCpu, TensorListConcatListsKernel);
MILLRACE_KERNEL(TensorListPushBackBatch, kCpu, TensorListPushBackBatchKernel);

}  // namespace
}  // namespace millrace
