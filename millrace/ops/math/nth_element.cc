// NthElement.
#include <algorithm>
#include <memory>
#include <type_traits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {
namespace {

// Up to this size std::nth_element is used.
constexpr int64_t kFew = 64;
// Also after this many rounds, which only adversarial rows need.
constexpr int kMostRounds = 64;
constexpr int64_t kSample = 15;

template <typename T, typename F>
int64_t Count(const T* x, int64_t length, F wanted) {
  constexpr int64_t kPiece = 4096;  // 32-bit counters are faster
  int64_t count = 0;
  for (int64_t i = 0; i < length;) {
    int32_t in_piece = 0;
    for (const int64_t end = std::min(length, i + kPiece); i < end; ++i) in_piece += wanted(x[i]);
    count += in_piece;
  }
  return count;
}

// Branch-free; `to` may alias `x`.
template <typename T, typename F>
void Keep(const T* x, int64_t length, F wanted, T* to) {
  int64_t kept = 0;
  for (int64_t i = 0; i < length; ++i) {
    const T v = x[i];
    to[kept] = v;
    kept += wanted(v);
  }
}

// A pivot that is probably near the n-th element, on the side that leaves fewer elements.
template <typename T>
T Pivot(const T* x, int64_t length, int64_t n) {
  T sample[kSample];
  const int64_t step = length / kSample;
  for (int64_t i = 0; i < kSample; ++i) {
    const T v = x[i * step + step / 2];
    int64_t at = i;
    for (; at > 0 && v < sample[at - 1]; --at) sample[at] = sample[at - 1];
    sample[at] = v;
  }
  const int64_t rank = n * (kSample + 1) / length;
  return sample[n < length / 2 ? std::min(rank + 1, kSample - 1) : std::max<int64_t>(rank - 2, 0)];
}

// The n-th smallest, with NaNs last. `scratch` is as large as the row.
template <typename T>
T NthOf(const T* x, int64_t length, int64_t n, T* scratch) {
  if constexpr (!std::is_integral_v<T>) {
    const int64_t numbers = Count(x, length, [](T v) { return v == v; });
    if (n >= numbers) return *std::find_if(x, x + length, [](T v) { return v != v; });
    if (numbers < length) {
      Keep(
          x, length, [](T v) { return v == v; }, scratch);
      x = scratch;
      length = numbers;
    }
  }
  for (int round = 0; length > kFew && round < kMostRounds; ++round) {
    const T pivot = Pivot(x, length, n);
    const int64_t below = Count(x, length, [&](T v) { return v < pivot; });
    if (n < below) {
      Keep(
          x, length, [&](T v) { return v < pivot; }, scratch);
      length = below;
    } else {
      const int64_t not_above = Count(x, length, [&](T v) { return v <= pivot; });
      if (n < not_above) return pivot;
      Keep(
          x, length, [&](T v) { return v > pivot; }, scratch);
      n -= not_above;
      length -= not_above;
    }
    x = scratch;
  }
  if (x != scratch) std::copy(x, x + length, scratch);
  std::nth_element(scratch, scratch + n, scratch + length);
  return scratch[n];
}

class NthElementKernel : public Kernel {
 public:
  explicit NthElementKernel(KernelInit& init) {
    init.Attr("reverse", &reverse_);
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (ctx.input(1).rank() != 0) {
      return InvalidArgument("N must be scalar but has rank ", ctx.input(1).rank());
    }
    MR_ASSIGN_OR_RETURN(int64_t n, ScalarInput(ctx, 1, "n"));
    if (n < 0) return InvalidArgument("n must be non-negative but is ", n);
    if (input.rank() < 1) return InvalidArgument("Input must be at least rank 1 but is rank ", input.rank());
    const int64_t length = input.dim(input.rank() - 1);
    if (n >= length)
      return InvalidArgument("Input must have last dimension > n = ", n, ": Input must have at least n+1 columns");
    if (reverse_) n = length - n - 1;
    Shape shape = input.shape();
    shape.RemoveDim(shape.rank() - 1);
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(0, shape));
    DispatchType(RealTypes{}, input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* x = input.data<T>();
      T* out = values->data<T>();
      const int64_t grain = std::max<int64_t>(1, kCostlyGrain / length);
      ctx.ParallelFor(shape.num_elements(), grain, [&](int64_t begin, int64_t end) {
        const auto scratch = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(length));
        for (int64_t r = begin; r < end; ++r) out[r] = NthOf(x + r * length, length, n, scratch.get());
      });
    });
    return absl::OkStatus();
  }

 private:
  bool reverse_ = false;
};

Status NthElementShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape input, c.WithRankAtLeast(0, 1));
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  if (!input.known_rank()) return absl::OkStatus();
  c.set_output(0, PartialShape(input.dims().subspan(0, input.rank() - 1)));
  return absl::OkStatus();
}

// The gradient is divided evenly among the elements of the row that equal the result.
Status NthElementGradient(GradientContext& c) {
  const Endpoint input = c.input(0), last = c.Scalar<int32_t>(-1);
  const Endpoint found = c.Op("ExpandDims", {c.output(0), last}), g = c.Op("ExpandDims", {c.grad(), last});
  const Endpoint is_found = c.Cast(c.Op("Equal", {input, found}), g.dtype());
  const Endpoint ties = c.Op("Sum", {is_found, last}, {{"keep_dims", true}});
  c.set_input_grad(0, c.Mul(c.Div(is_found, ties), g));
  return c.status();
}

}  // namespace

MILLRACE_OP(NthElement)
    .Input("input: T")
    .Input("n: int32")
    .Output("values: T")
    .Attr("reverse: bool = false")
    .Attr("T: realnumbertype")
    .Shape(NthElementShape)
    .Gradient(NthElementGradient)
    .Summary("The n-th smallest element of each row");

MILLRACE_KERNEL(NthElement, kCpu, NthElementKernel);

}  // namespace millrace
