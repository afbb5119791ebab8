// MirrorPad adds a border that mirrors the content; MirrorPadGrad adds the border's gradient back to the content.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/paddings.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The element in [0, n) that position `at` of the padded dimension mirrors. `skip` is 1 if the edge itself is not
// repeated (REFLECT).
int64_t Mirrored(int64_t at, int64_t before, int64_t n, int skip) {
  at -= before;
  if (at < 0) return -at - 1 + skip;
  if (at >= n) return 2 * n - 1 - skip - at;
  return at;
}

Status CheckMirror(const Shape& inside, const Paddings& paddings, int skip) {
  for (int i = 0; i < inside.rank(); ++i) {
    const int64_t limit = inside.dim(i) - skip;
    if (paddings[i].before > limit || paddings[i].after > limit) {
      return InvalidArgument("paddings must be ", skip == 1 ? "less than" : "no greater than",
                             " the dimension size: ", paddings[i].before, ", ", paddings[i].after,
                             skip == 1 ? " not less than " : " greater than ", inside.dim(i), " in dimension ", i);
    }
  }
  return absl::OkStatus();
}

// Calls visit(padded, inside) for each element of the padded tensor and the element that it mirrors, both as offsets,
// in row-major order.
template <typename Visit>
void ForEachMirrored(const Shape& padded, const Shape& inside, const Paddings& paddings, int skip, Visit visit) {
  const int rank = padded.rank();
  const auto strides = RowMajorStrides(inside.dims());
  const int64_t n = padded.num_elements();
  if (n == 0) return;
  IntList at(rank, 0);
  const auto part = [&](int d) { return Mirrored(at[d], paddings[d].before, inside.dim(d), skip) * strides[d]; };
  int64_t base = 0;
  for (int d = 0; d + 1 < rank; ++d) base += part(d);
  for (int64_t i = 0; i < n; ++i) {
    // Fast path for elements that are not mirrored.
    if (rank > 0 && at[rank - 1] == paddings[rank - 1].before) {
      const int64_t straight = inside.dim(rank - 1);
      for (int64_t k = 0; k + 1 < straight; ++k) visit(i + k, base + k);
      if (straight > 1) {
        i += straight - 1;
        at[rank - 1] += straight - 1;
      }
    }
    visit(i, rank > 0 ? base + part(rank - 1) : 0);
    int d = rank - 1;
    if (d >= 0 && ++at[d] < padded.dim(d)) continue;
    for (; d >= 0 && at[d] == padded.dim(d);) {
      at[d--] = 0;
      if (d >= 0) ++at[d];
    }
    base = 0;
    for (int e = 0; e + 1 < rank; ++e) base += i + 1 < n ? part(e) : 0;
  }
}

class MirrorPadKernel : public Kernel {
 public:
  explicit MirrorPadKernel(KernelInit& init) {
    std::string mode;
    init.Attr("mode", &mode);
    skip_ = mode == "REFLECT" ? 1 : 0;
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Paddings paddings, ReadPaddings(ctx.input(1), input.rank()));
    MR_RETURN_IF_ERROR(CheckMirror(input.shape(), paddings, skip_));
    MR_ASSIGN_OR_RETURN(const Shape shape, PaddedShape(input.shape(), paddings));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const bool known = DispatchMove(input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = input.raw<T>();
      T* to = out->raw<T>();
      ForEachMirrored(shape, input.shape(), paddings, skip_,
                      [&](int64_t padded, int64_t inside) { to[padded] = from[inside]; });
    });
    return known ? absl::OkStatus() : InvalidArgument("MirrorPad does not take ", input.dtype());
  }

 private:
  int skip_ = 0;
};

class MirrorPadGradKernel : public Kernel {
 public:
  explicit MirrorPadGradKernel(KernelInit& init) {
    std::string mode;
    init.Attr("mode", &mode);
    skip_ = mode == "REFLECT" ? 1 : 0;
    if (!DispatchType(NumberTypes(), init.input_type(0), [](auto) {})) {
      FailDType(init, init.input_type(0));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Paddings paddings, ReadPaddings(ctx.input(1), input.rank()));
    Shape inside = input.shape();
    for (int i = 0; i < input.rank(); ++i) {
      const int64_t before = paddings[i].before, after = paddings[i].after;
      if (before > input.dim(i) || after > input.dim(i) - before) {
        return InvalidArgument("Total paddings must not be greater than the input dimension size: ", before, ", ",
                               after, " for ", input.dim(i), " in dimension ", i);
      }
      inside.set_dim(i, input.dim(i) - before - after);
    }
    MR_RETURN_IF_ERROR(CheckMirror(inside, paddings, skip_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, inside));
    DispatchType(NumberTypes(), input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = input.data<T>();
      T* to = out->data<T>();
      std::fill_n(to, inside.num_elements(), T{});
      ForEachMirrored(input.shape(), inside, paddings, skip_,
                      [&](int64_t padded, int64_t at) { to[at] = static_cast<T>(to[at] + from[padded]); });
    });
    return absl::OkStatus();
  }

 private:
  int skip_ = 0;
};

Status MirrorPadGradShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  const Tensor* value = c.constant(1);
  if (!in.known_rank() || value == nullptr) {
    c.set_output(0, in.known_rank() ? PartialShape::UnknownOfRank(in.rank()) : PartialShape());
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const Paddings paddings, ReadPaddings(*value, in.rank()));
  PartialShape out = in;
  for (int i = 0; i < in.rank(); ++i) {
    if (in.dim(i) < 0) continue;
    if (paddings[i].before > in.dim(i) || paddings[i].after > in.dim(i) - paddings[i].before) {
      return InvalidArgument("the paddings of dimension ", i, " are greater than its size ", in.dim(i));
    }
    out.set_dim(i, in.dim(i) - paddings[i].before - paddings[i].after);
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

Status MirrorPadGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MirrorPadGrad", {c.grad(), c.input(1)}, {{"mode", c.AttrOr<std::string>("mode", "")}}));
  return absl::OkStatus();
}

Status MirrorPadGradGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("MirrorPad", {c.grad(), c.input(1)}, {{"mode", c.AttrOr<std::string>("mode", "")}}));
  return absl::OkStatus();
}

MILLRACE_OP(MirrorPad)
    .Input("input: T")
    .Input("paddings: Tpaddings")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tpaddings: {int32, int64} = int32")
    .Attr("mode: {'REFLECT', 'SYMMETRIC'}")
    .Shape(PadShape)
    .Gradient(MirrorPadGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("Pads a tensor with mirrored values.");
MILLRACE_KERNEL(MirrorPad, kCpu, MirrorPadKernel);

MILLRACE_OP(MirrorPadGrad)
    .Input("input: T")
    .Input("paddings: Tpaddings")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tpaddings: {int32, int64} = int32")
    .Attr("mode: {'REFLECT', 'SYMMETRIC'}")
    .Shape(MirrorPadGradShape)
    .Gradient(MirrorPadGradGradient)
    .Summary("The gradient of MirrorPad.");
MILLRACE_KERNEL(MirrorPadGrad, kCpu, MirrorPadGradKernel);

}  // namespace
}  // namespace millrace
