// BatchMatMul and its later versions. From V2 on the batch dimensions broadcast; V3 may have another output type.
#include "millrace/ops/math/batch_matmul.h"

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

PartialShape BatchOf(const PartialShape& s) { return PartialShape(s.dims().subspan(0, s.rank() - 2)); }

Status BatchMatMulShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool adj_x, c.Attr<bool>("adj_x"));
  MR_ASSIGN_OR_RETURN(const bool adj_y, c.Attr<bool>("adj_y"));
  MR_ASSIGN_OR_RETURN(const PartialShape x, c.WithRankAtLeast(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape y, c.WithRankAtLeast(1, 2));
  if (!x.known_rank() || !y.known_rank()) return UnknownShape(c);
  const int rx = x.rank(), ry = y.rank();
  const int64_t inner_x = x.dim(adj_x ? rx - 2 : rx - 1), inner_y = y.dim(adj_y ? ry - 1 : ry - 2);
  if (inner_x >= 0 && inner_y >= 0 && inner_x != inner_y) {
    return InvalidArgument("inner dimensions of a matrix product differ: x has shape ", x.ToString(), ", y ",
                           y.ToString());
  }
  PartialShape out;
  if (c.node().is_type("BatchMatMul")) {
    MR_ASSIGN_OR_RETURN(out, BatchOf(x).MergeWith(BatchOf(y)));
  } else {
    MR_ASSIGN_OR_RETURN(out, BroadcastShapes(BatchOf(x), BatchOf(y)));
  }
  if (!out.known_rank()) return UnknownShape(c);
  out.AddDim(x.dim(adj_x ? rx - 1 : rx - 2));
  out.AddDim(y.dim(adj_y ? ry - 2 : ry - 1));
  c.set_output(0, out);
  return absl::OkStatus();
}

// Sums a gradient over the batch dimensions along which `input` was broadcast.
Endpoint SumToBatch(GradientContext& c, Endpoint grad, Endpoint input, Endpoint axes) {
  const Endpoint sum = c.Op("Sum", {grad, axes}, {{"keep_dims", false}});
  return c.Reshape(sum, c.Shape(input));
}

void SetBatchGrads(GradientContext& c, Endpoint dx, Endpoint dy) {
  const Endpoint x = c.input(0), y = c.input(1);
  const PartialShape& sx = x.shape();
  const PartialShape& sy = y.shape();
  const bool same_batch =
      sx.IsFullyDefined() && sy.IsFullyDefined() && sx.rank() >= 2 && sy.rank() >= 2 && BatchOf(sx) == BatchOf(sy);
  if (c.node()->is_type("BatchMatMul") || same_batch) {
    c.set_input_grad(0, dx);
    c.set_input_grad(1, dy);
    return;
  }
  const auto batch_shape = [&](Endpoint e) {
    return c.Op("StridedSlice", {c.Shape(e), c.Ints({0}), c.Ints({-2}), c.Ints({1})}, {{"begin_mask", 1}});
  };
  const Endpoint batches[] = {batch_shape(x), batch_shape(y)};
  Node* axes = c.AddNode("BroadcastGradientArgs", batches);
  if (axes == nullptr) return;
  c.set_input_grad(0, SumToBatch(c, dx, x, Endpoint{axes, 0}));
  c.set_input_grad(1, SumToBatch(c, dy, y, Endpoint{axes, 1}));
}

Status BatchMatMulGradient(GradientContext& c) {
  const bool adj_x = c.AttrOr("adj_x", false), adj_y = c.AttrOr("adj_y", false);
  const Endpoint g = c.grad(), x = c.input(0), y = c.input(1);
  const std::string& type = c.node()->type();
  const auto product = [&](Endpoint a, bool adj_a, Endpoint b, bool adj_b, Endpoint like) {
    AttrList attrs = {{"adj_x", adj_a}, {"adj_y", adj_b}};
    if (type == "BatchMatMulV3") attrs.push_back({"Tout", like.dtype()});
    return c.Op(type, {a, b}, std::move(attrs));
  };
  // The adjoint conjugates, so that the same forms serve complex matrices.
  const Endpoint dx = adj_x ? product(y, adj_y, g, true, x) : product(g, false, y, !adj_y, x);
  const Endpoint dy = adj_y ? product(g, true, x, adj_x, y) : product(x, !adj_x, g, false, y);
  SetBatchGrads(c, dx, dy);
  return absl::OkStatus();
}

MILLRACE_OP(BatchMatMul)
    .Summary("Batched products of the matrices in the last two dimensions.")
    .Input("x: T")
    .Input("y: T")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double, int32, int64, complex64, complex128}")
    .Attr("adj_x: bool = false")
    .Attr("adj_y: bool = false")
    .Attr("grad_x: bool = false")
    .Attr("grad_y: bool = false")
    .Shape(BatchMatMulShape)
    .Gradient(BatchMatMulGradient);

MILLRACE_OP(BatchMatMulV2)
    .Summary("Batched products of the matrices in the last two dimensions; the other dimensions broadcast.")
    .Input("x: T")
    .Input("y: T")
    .Output("output: T")
    .Attr(
        "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, "
        "complex64, complex128}")
    .Attr("adj_x: bool = false")
    .Attr("adj_y: bool = false")
    .Attr("grad_x: bool = false")
    .Attr("grad_y: bool = false")
    .Shape(BatchMatMulShape)
    .Gradient(BatchMatMulGradient);

MILLRACE_OP(BatchMatMulV3)
    .Summary("BatchMatMulV2 with an optional output type.")
    .Input("x: Ta")
    .Input("y: Tb")
    .Output("output: Tout")
    .Attr("Ta: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}")
    .Attr("Tb: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}")
    .Attr("Tout: {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}")
    .Attr("adj_x: bool = false")
    .Attr("adj_y: bool = false")
    .Attr("grad_x: bool = false")
    .Attr("grad_y: bool = false")
    .Shape(BatchMatMulShape)
    .Gradient(BatchMatMulGradient);

// The pairs of matrices to multiply, in output order.
std::vector<MatrixPair> PairUp(const BatchMatMulOp::Call& call) {
  const Shape::Dims& dims = call.batch;
  int64_t count = 1;
  for (const int64_t size : dims) count *= size;
  std::vector<MatrixPair> pairs(count);
  for (size_t i = 0; i < pairs.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), at_x = 0, at_y = 0;
    for (size_t d = dims.size(); d-- > 0;) {
      at_x += rest % dims[d] * call.step_x[d];
      at_y += rest % dims[d] * call.step_y[d];
      rest /= dims[d];
    }
    pairs[i] = {at_x, at_y};
  }
  return pairs;
}

// `x` as `dtype`, in scratch memory unless it is of that type.
StatusOr<Tensor> Converted(KernelContext& ctx, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  MR_ASSIGN_OR_RETURN(Tensor y, ctx.AllocateTemp(dtype, x.shape()));
  bool known = false;
  DispatchType(Types<float, int32_t>{}, dtype, [&](auto to) {
    using To = typename decltype(to)::type;
    known = DispatchType(Types<int8_t, uint8_t, bfloat16, half>{}, x.dtype(), [&](auto from) {
      const auto* in = x.data<typename decltype(from)::type>();
      std::copy(in, in + x.num_elements(), y.data<To>());
    });
  });
  if (known) return y;
  return Unimplemented("no product of matrices of ", DTypeName(x.dtype()), " as ", DTypeName(dtype));
}

class BatchMatMulKernel : public Kernel {
 public:
  explicit BatchMatMulKernel(KernelInit& init) : op_(init) {
    if (!HasMatrixProduct(init.output_type(0))) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const BatchMatMulOp::Call call, op_.Get(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * product, ctx.AllocateOutput(0, call.result));
    if (product->num_elements() == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const Tensor x, Converted(ctx, ctx.input(0), product->dtype()));
    MR_ASSIGN_OR_RETURN(const Tensor y, Converted(ctx, ctx.input(1), product->dtype()));
    return MatrixProducts(ctx, call.shape, PairUp(call), x, y, product,
                          {.conjugate_a = op_.adj_x(), .conjugate_b = op_.adj_y()});
  }

 private:
  const BatchMatMulOp op_;
};

MILLRACE_KERNEL(BatchMatMul, kCpu, BatchMatMulKernel);
MILLRACE_KERNEL(BatchMatMulV2, kCpu, BatchMatMulKernel);
MILLRACE_KERNEL(BatchMatMulV3, kCpu, BatchMatMulKernel);

}  // namespace

BatchMatMulOp::BatchMatMulOp(KernelInit& init) : broadcasts_(!init.node().is_type("BatchMatMul")) {
  init.Attr("adj_x", &adj_x_);
  init.Attr("adj_y", &adj_y_);
}

StatusOr<BatchMatMulOp::Call> BatchMatMulOp::Get(KernelContext& ctx) const {
  const Shape &x = ctx.input(0).shape(), &y = ctx.input(1).shape();
  const int rx = x.rank(), ry = y.rank();
  if (rx < 2 || ry < 2) {
    return InvalidArgument("matrix products need at least two dimensions, but x has shape ", x.ToString(), " and y ",
                           y.ToString());
  }
  Call call;
  call.shape = {.m = x.dim(adj_x_ ? rx - 1 : rx - 2),
                .n = y.dim(adj_y_ ? ry - 2 : ry - 1),
                .k = x.dim(adj_x_ ? rx - 2 : rx - 1),
                .transpose_a = adj_x_,
                .transpose_b = adj_y_};
  if (call.shape.k != y.dim(adj_y_ ? ry - 1 : ry - 2)) {
    return InvalidArgument("inner dimensions of a matrix product differ: x has shape ", x.ToString(),
                           adj_x_ ? " (adjoint)" : "", ", y ", y.ToString(), adj_y_ ? " (adjoint)" : "");
  }
  if (!broadcasts_ && x.dims().subspan(0, rx - 2) != y.dims().subspan(0, ry - 2)) {
    return InvalidArgument("batch dimensions differ: x has shape ", x.ToString(), ", y ", y.ToString());
  }
  const int nx = rx - 2, ny = ry - 2, n = std::max(nx, ny);
  call.batch.resize(n);
  call.step_x.resize(n);
  call.step_y.resize(n);
  int64_t size_x = 1, size_y = 1;
  for (int i = n - 1; i >= 0; --i) {
    const int ix = i - (n - nx), iy = i - (n - ny);
    const int64_t dx = ix >= 0 ? x.dim(ix) : 1, dy = iy >= 0 ? y.dim(iy) : 1;
    if (dx != dy && dx != 1 && dy != 1) {
      return InvalidArgument("batch dimensions do not broadcast: x has shape ", x.ToString(), ", y ", y.ToString());
    }
    call.batch[i] = dx == 1 ? dy : dx;
    call.step_x[i] = dx == 1 ? 0 : size_x;
    call.step_y[i] = dy == 1 ? 0 : size_y;
    size_x *= dx;
    size_y *= dy;
  }
  Shape::Dims dims = call.batch;
  dims.push_back(call.shape.m);
  dims.push_back(call.shape.n);
  MR_ASSIGN_OR_RETURN(call.result, Shape::Make(dims));
  return call;
}

UniformBatches SplitBatch(const BatchMatMulOp::Call& call) {
  struct Dim {
    int64_t size, x, y, product;
  };
  // Innermost first; neighbours that step alike are one dimension.
  std::vector<Dim> dims;
  int64_t product = 1;
  for (size_t d = call.batch.size(); d-- > 0;) {
    const Dim next = {call.batch[d], call.step_x[d], call.step_y[d], product};
    product *= next.size;
    if (next.size == 1) continue;
    if (!dims.empty() && next.x == dims.back().size * dims.back().x && next.y == dims.back().size * dims.back().y) {
      dims.back().size *= next.size;
    } else {
      dims.push_back(next);
    }
  }
  UniformBatches batches;
  if (!dims.empty()) {
    const auto longest =
        std::max_element(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.size < b.size; });
    batches.count = longest->size;
    batches.step_x = longest->x;
    batches.step_y = longest->y;
    batches.step_product = longest->product;
    dims.erase(longest);
  }
  batches.starts.push_back({0, 0, 0});
  for (const Dim& dim : dims) {
    const size_t before = batches.starts.size();
    for (int64_t i = 1; i < dim.size; ++i) {
      for (size_t k = 0; k < before; ++k) {
        const UniformBatches::Start& start = batches.starts[k];
        batches.starts.push_back({start.x + i * dim.x, start.y + i * dim.y, start.product + i * dim.product});
      }
    }
  }
  return batches;
}

}  // namespace millrace
