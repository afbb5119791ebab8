// Bincount, DenseBincount.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {
namespace {

// Counts values[0..n) into bins[0..size), weighted where there are weights. Values >= size are
// ignored.
template <typename T>
Status CountRow(const Tensor& values, int64_t begin, int64_t n, const T* weights, bool binary, int64_t size, T* bins) {
  std::fill_n(bins, size, T(0));
  for (int64_t i = begin; i < begin + n; ++i) {
    const int64_t value = IntAt(values, i);
    if (value < 0) return InvalidArgument("Input arr must be non-negative!");
    if (value >= size) continue;
    if (binary) {
      bins[value] = T(1);
    } else {
      bins[value] += weights == nullptr ? T(1) : weights[i];
    }
  }
  return absl::OkStatus();
}

using WeightTypes = Types<int32_t, int64_t, float, double>;

class BincountKernel : public Kernel {
 public:
  explicit BincountKernel(KernelInit& init) {
    if (!DispatchType(WeightTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &values = ctx.input(0), &weights = ctx.input(2);
    if (ctx.input(1).rank() != 0) {
      return InvalidArgument("Shape must be rank 0 but is rank ", ctx.input(1).rank(), " for size");
    }
    MR_ASSIGN_OR_RETURN(const int64_t size, ScalarInput(ctx, 1, "size"));
    if (size < 0) return InvalidArgument("size (", size, ") must be non-negative");
    if (weights.num_elements() != 0 && weights.shape() != values.shape()) {
      return InvalidArgument("weights must have the shape of the values or no elements: ", weights.shape().ToString(),
                             " vs. ", values.shape().ToString());
    }
    if (dense_ && values.rank() > 2) {
      return InvalidArgument("Shape must be at most rank 2 but is rank ", values.rank());
    }
    const bool matrix = dense_ && values.rank() == 2;
    const int64_t rows = matrix ? values.dim(0) : 1;
    const int64_t n = matrix ? values.dim(1) : values.num_elements();
    MR_ASSIGN_OR_RETURN(Tensor * bins, ctx.AllocateOutput(0, matrix ? Shape({rows, size}) : Shape({size})));
    if (bins->num_elements() == 0 && n == 0) return absl::OkStatus();
    Status status;
    DispatchType(WeightTypes{}, bins->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* w = weights.num_elements() == 0 ? nullptr : weights.data<T>();
      for (int64_t r = 0; r < rows && status.ok(); ++r) {
        status = CountRow<T>(values, r * n, n, w, binary_, size, bins->data<T>() + r * size);
      }
    });
    return status;
  }

 protected:
  bool dense_ = false;
  bool binary_ = false;
};

class DenseBincountKernel : public BincountKernel {
 public:
  explicit DenseBincountKernel(KernelInit& init) : BincountKernel(init) {
    dense_ = true;
    init.Attr("binary_output", &binary_);
  }
};

int64_t ConstantSize(ShapeContext& c) {
  const Tensor* size = c.constant(1);
  return size == nullptr || size->num_elements() != 1 ? PartialShape::kUnknown : IntAt(*size, 0);
}

Status BincountShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  const int64_t size = ConstantSize(c);
  if (size < -1) return InvalidArgument("size (", size, ") must be non-negative");
  c.set_output(0, PartialShape({size}));
  return absl::OkStatus();
}

Status DenseBincountShape(ShapeContext& c) {
  const PartialShape& values = c.input(0);
  if (!values.known_rank()) return absl::OkStatus();
  if (values.rank() > 2) return InvalidArgument("Shape must be at most rank 2 but is rank ", values.rank());
  const int64_t size = ConstantSize(c);
  if (size < -1) return InvalidArgument("size (", size, ") must be non-negative");
  c.set_output(0, values.rank() == 2 ? PartialShape({values.dim(0), size}) : PartialShape({size}));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(Bincount)
    .Input("arr: int32")
    .Input("size: int32")
    .Input("weights: T")
    .Output("bins: T")
    .Attr("T: {int32, int64, float, double}")
    .Shape(BincountShape)
    .NotDifferentiable()
    .Summary("Counts, or sums the weights of, each of 0 .. size-1");
MILLRACE_OP(DenseBincount)
    .Input("input: Tidx")
    .Input("size: Tidx")
    .Input("weights: T")
    .Output("output: T")
    .Attr("Tidx: {int32, int64}")
    .Attr("T: {int32, int64, float, double}")
    .Attr("binary_output: bool = false")
    .Shape(DenseBincountShape)
    .NotDifferentiable()
    .Summary("Counts, or sums the weights of, each of 0 .. size-1, per row of a matrix");

MILLRACE_KERNEL(Bincount, kCpu, BincountKernel);
MILLRACE_KERNEL(DenseBincount, kCpu, DenseBincountKernel);

}  // namespace millrace
