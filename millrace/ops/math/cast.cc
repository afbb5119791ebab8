// Cast.
#include <cstring>

#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

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

class CastKernel : public UnaryKernel {
 public:
  explicit CastKernel(KernelInit& init) {
    const DType from = BaseType(init.input_type(0)), to = init.output_type(0);
    bool truncate = false;
    init.Attr("Truncate", &truncate);
    same_type_ = from == to;
    if (same_type_) return;
    if (truncate) loop_ = TruncatingLoop(from, to);
    if (loop_ != nullptr) return;
    DispatchType(PlainTypes{}, from, [&](auto from_tag) {
      DispatchType(PlainTypes{}, to, [&](auto to_tag) {
        using From = typename decltype(from_tag)::type;
        using To = typename decltype(to_tag)::type;
        if constexpr (!std::is_same_v<From, To>) loop_ = &CastLoop<From, To>;
      });
    });
    if (loop_ == nullptr) {
      init.Fail(Unimplemented("Cast ", DTypeName(from), " to ", DTypeName(to), " is not supported"));
    }
  }

  Status Compute(KernelContext& ctx) override {
    if (!same_type_) return UnaryKernel::Compute(ctx);
    ctx.SetOutput(0, ctx.input(0));
    return absl::OkStatus();
  }

 private:
  bool same_type_ = false;
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
