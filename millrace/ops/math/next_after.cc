// NextAfter, PopulationCount.
#include <bit>
#include <cmath>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

// A branch-free std::nextafter. As integers, the bits of a float increase away from zero.
struct Neighbour {
  template <typename T>
  T operator()(T from, T towards) const {
    using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    const Bits grows = (from < towards) == (from > 0) ? 1 : -1;
    const T next = std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(from) + grows));
    const T from_zero = std::copysign(std::numeric_limits<T>::denorm_min(), towards);
    const T moved = from == 0 ? from_zero : next;
    return from != from || towards != towards ? from + towards : from == towards ? towards : moved;
  }
};

class PopulationCountKernel : public Kernel {
 public:
  explicit PopulationCountKernel(KernelInit& init) {
    if (!DispatchType(IntTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    DispatchType(IntTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      // Local copies: a byte store may alias anything, including the pointers.
      const T* const from = x.data<T>();
      uint8_t* const to = y->data<uint8_t>();
      ctx.ParallelFor(x.num_elements(), kCheapGrain, [from, to](int64_t begin, int64_t end) {
        const T* const a = from;
        uint8_t* const b = to;
        for (int64_t i = begin; i < end; ++i) {
          b[i] = static_cast<uint8_t>(std::popcount(static_cast<std::make_unsigned_t<T>>(a[i])));
        }
      });
    });
    return absl::OkStatus();
  }
};

Status NextAfterGradient(GradientContext& c) {
  c.SetBroadcastGrads(0, c.grad(), 1, c.Op("ZerosLike", {c.grad()}));
  return c.status();
}

}  // namespace

MILLRACE_OP(NextAfter)
    .Input("x1: T")
    .Input("x2: T")
    .Output("output: T")
    .Attr("T: {double, float} = DT_FLOAT")
    .Shape(BroadcastShape)
    .Gradient(NextAfterGradient)
    .Summary("The next representable number after x1 in the direction of x2");
MILLRACE_OP(PopulationCount)
    .Input("x: T")
    .Output("y: uint8")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("The number of set bits");

MILLRACE_KERNEL(NextAfter, kCpu, BinaryOf<Neighbour, Types<float, double>>);
MILLRACE_KERNEL(PopulationCount, kCpu, PopulationCountKernel);

}  // namespace millrace
