// Cast.
#include <cstring>

#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/tensor/narrow_types.h"

namespace millrace {
namespace {

template <typename From, typename To>
To Convert(From x) {
  if constexpr (kIsComplex<From> && kIsComplex<To>) {
    return To(static_cast<typename To::value_type>(x.real()), static_cast<typename To::value_type>(x.imag()));
  } else if constexpr (kIsComplex<From>) {
    return Convert<typename From::value_type, To>(x.real());
  } else if constexpr (kIsComplex<To>) {
    return To(Convert<From, typename To::value_type>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (kIs16BitFloat<From>) {
    return static_cast<To>(static_cast<float>(x));
  } else {
    return static_cast<To>(x);
  }
}

template <typename From, typename To>
void CastLoop(const void* in, void* out, int64_t n) {
  const From* x = static_cast<const From*>(in);
  To* y = static_cast<To*>(out);
  if constexpr (std::is_same_v<To, float> && kIs16BitFloat<From>) {
    Widen(x, y, n);
  } else if constexpr (std::is_same_v<From, float> && kIs16BitFloat<To>) {
    Narrow(x, y, n);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = Convert<From, To>(x[i]);
  }
}

// Narrowing that truncates the low bits instead of rounding.
template <typename From, typename Bits, int kDropped>
From CutMantissa(From x) {
  Bits bits;
  std::memcpy(&bits, &x, sizeof(x));
  if (x == x) bits = bits >> kDropped << kDropped;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
template <typename From, typename To, typename Bits, int kDropped>
void TruncateLoop(const void* in, void* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const From cut = CutMantissa<From, Bits, kDropped>(static_cast<const From*>(in)[i]);
    static_cast<To*>(out)[i] = static_cast<To>(cut);
  }
}
UnaryLoop TruncatingLoop(DType from, DType to) {
  if (from == DType::kDouble) {
    if (to == DType::kFloat) return &TruncateLoop<double, float, uint64_t, 29>;
    if (to == DType::kBFloat16) return &TruncateLoop<double, bfloat16, uint64_t, 45>;
    if (to == DType::kHalf) return &TruncateLoop<double, half, uint64_t, 42>;
  } else if (from == DType::kFloat) {
    if (to == DType::kBFloat16) return &TruncateLoop<float, bfloat16, uint32_t, 16>;
    if (to == DType::kHalf) return &TruncateLoop<float, half, uint32_t, 13>;
  }
  return nullptr;
}

template <size_t kSize>
void CopyLoop(const void* in, void* out, int64_t n) {
  if (in != out) std::memcpy(out, in, kSize * n);
}

// The loop between two types that are not narrow; a quantized type is converted as the integer that it is stored as.
UnaryLoop LoopBetween(DType from, DType to) {
  from = UnquantizedType(from);
  to = UnquantizedType(to);
  UnaryLoop loop = nullptr;
  DispatchType(PlainTypes{}, from, [&](auto from_tag) {
    DispatchType(PlainTypes{}, to, [&](auto to_tag) {
      using From = typename decltype(from_tag)::type;
      using To = typename decltype(to_tag)::type;
      if constexpr (std::is_same_v<From, To>) {
        loop = &CopyLoop<sizeof(From)>;
      } else {
        loop = &CastLoop<From, To>;
      }
    });
  });
  return loop;
}

class CastKernel : public UnaryKernel {
 public:
  explicit CastKernel(KernelInit& init) : from_(BaseType(init.input_type(0))), to_(init.output_type(0)) {
    bool truncate = false;
    init.Attr("Truncate", &truncate);
    if (from_ == to_) return;
    if (truncate) loop_ = TruncatingLoop(from_, to_);
    if (loop_ == nullptr) loop_ = LoopBetween(WideType(from_), WideType(to_));
    if (loop_ == nullptr) {
      init.Fail(Unimplemented("Cast ", DTypeName(from_), " to ", DTypeName(to_), " is not supported"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    if (from_ == to_) {
      ctx.SetOutput(0, ctx.input(0));
      return absl::OkStatus();
    }
    return IsNarrow(from_) || IsNarrow(to_) ? ComputeThroughWideTypes(ctx) : UnaryKernel::Compute(ctx);
  }

 private:
  Status ComputeThroughWideTypes(KernelContext& ctx) const {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    const auto* in = static_cast<const char*>(x.raw_data());
    auto* out = static_cast<char*>(y->raw_data());
    ctx.ParallelFor(x.num_elements(), kCostlyGrain, [&](int64_t begin, int64_t end) {
      // Room for a block of the widest type, complex128.
      alignas(16) char widened[16 * kBlock], converted[16 * kBlock];
      for (int64_t i = begin; i < end; i += kBlock) {
        const int64_t n = std::min(kBlock, end - i);
        const void* from = in + i * SizeOf(from_);
        if (IsNarrow(from_)) {
          WidenElements(from_, static_cast<const uint8_t*>(from), widened, n);
          from = widened;
        }
        void* to = out + i * SizeOf(to_);
        loop_(from, IsNarrow(to_) ? converted : to, n);
        if (IsNarrow(to_)) NarrowElements(to_, converted, static_cast<uint8_t*>(to), n);
      }
    });
    return absl::OkStatus();
  }

  const DType from_, to_;
};

Status CastGradient(GradientContext& c) {
  const DType from = BaseType(c.input(0).dtype()), to = c.output(0).dtype();
  const auto has_gradient = [](DType t) { return IsFloating(t) || IsComplex(t); };
  if (has_gradient(from) && has_gradient(to)) c.set_input_grad(0, c.Cast(c.grad(), from));
  return c.status();
}

}  // namespace

MILLRACE_OP(Cast)
    .Input("x: SrcT")
    .Output("y: DstT")
    .Attr("SrcT: type")
    .Attr("DstT: type")
    .Attr("Truncate: bool = false")
    .Shape(UnchangedShape)
    .Gradient(CastGradient)
    .Trait(OpTrait::kElementwise)
    .Ints(UnchangedInts)
    .Summary("Converts x to another type");

MILLRACE_KERNEL(Cast, kCpu, CastKernel);

}  // namespace millrace
