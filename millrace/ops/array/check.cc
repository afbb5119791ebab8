// EnsureShape and CheckNumerics: pass a tensor through or fail.
#include <atomic>
#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

class EnsureShapeKernel : public Kernel {
 public:
  explicit EnsureShapeKernel(KernelInit& init) { init.Attr("shape", &shape_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (!shape_.IsCompatibleWith(input.shape())) {
      return InvalidArgument("Shape of tensor ", ctx.node().input(0).node->name(), " ", input.shape().ToString(),
                             " is not compatible with expected shape ", shape_.ToString(), ".");
    }
    ctx.SetOutput(0, input);
    return absl::OkStatus();
  }

 private:
  PartialShape shape_;
};

Status EnsureShapeShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape wanted, c.Attr<PartialShape>("shape"));
  MR_ASSIGN_OR_RETURN(PartialShape shape, wanted.MergeWith(c.input(0)));
  c.set_output(0, shape);
  return absl::OkStatus();
}

Status EnsureShapeGradient(GradientContext& c) {
  c.set_input_grad(0, c.raw_grad(0));
  return absl::OkStatus();
}

constexpr int kNan = 1;
constexpr int kPositive = 2;  // infinity
constexpr int kNegative = 4;

template <typename T>
int FindBad(const T* p, int64_t n) {
  int bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(p[i]);
    // v - v is 0 for every finite number and NaN otherwise.
    if (v - v == 0) continue;
    bad |= v != v ? kNan : v > 0 ? kPositive : kNegative;
  }
  return bad;
}

class CheckNumericsKernel : public Kernel {
 public:
  explicit CheckNumericsKernel(KernelInit& init) : v2_(init.node().is_type("CheckNumericsV2")) {
    init.Attr("message", &message_);
    if (!DispatchType(FloatTypes(), init.input_type(0), [](auto) {})) {
      FailDType(init, init.input_type(0));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    std::atomic<int> bad{0};
    DispatchType(FloatTypes(), input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* p = input.data<T>();
      ctx.ParallelFor(input.num_elements(), 1 << 16, [&](int64_t begin, int64_t end) {
        if (const int found = FindBad(p + begin, end - begin)) bad.fetch_or(found);
      });
    });
    if (bad != 0) {
      return InvalidArgument(message_, " : Tensor had ", Describe(bad), " values");
    }
    ctx.SetOutput(0, input);
    return absl::OkStatus();
  }

 private:
  std::string Describe(int bad) const {
    if (!v2_) {
      return bad == kNan ? "NaN" : (bad & kNan) != 0 ? "Inf and NaN" : "Inf";
    }
    std::string text;
    const auto add = [&](int flag, absl::string_view name) {
      if ((bad & flag) != 0) absl::StrAppend(&text, text.empty() ? "" : " and ", name);
    };
    add(kNegative, "-Inf");
    add(kPositive, "+Inf");
    add(kNan, "NaN");
    return text;
  }

  const bool v2_;
  std::string message_;
};

Status CheckNumericsGradient(GradientContext& c) {
  const std::string message =
      absl::StrCat("the gradient of '", c.node()->name(), "' (", c.AttrOr<std::string>("message", ""), ")");
  c.set_input_grad(0, c.Op(c.node()->type(), {c.grad()}, {{"message", message}}));
  return absl::OkStatus();
}

MILLRACE_OP(EnsureShape)
    .Input("input: T")
    .Output("output: T")
    .Attr("shape: shape")
    .Attr("T: type")
    .Shape(EnsureShapeShape)
    .Gradient(EnsureShapeGradient)
    .Summary("Forwards a tensor, or fails if its shape does not match.");
MILLRACE_KERNEL(EnsureShape, kCpu, EnsureShapeKernel);
MILLRACE_KERNEL(EnsureShape, kCuda, EnsureShapeKernel);
MILLRACE_HOST_KERNEL(EnsureShape, kCuda, "T", DType::kInt32);

MILLRACE_OP(CheckNumerics)
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("message: string")
    .Stateful()
    .Shape(UnchangedShape)
    .Gradient(CheckNumericsGradient)
    .Summary("Forwards a tensor, or fails if it contains NaN or infinity.");
MILLRACE_KERNEL(CheckNumerics, kCpu, CheckNumericsKernel);

MILLRACE_OP(CheckNumericsV2)
    .Input("tensor: T")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("message: string")
    .Stateful()
    .Shape(UnchangedShape)
    .Gradient(CheckNumericsGradient)
    .Summary("Forwards a tensor, or fails if it contains NaN or infinity, naming its sign.");
MILLRACE_KERNEL(CheckNumericsV2, kCpu, CheckNumericsKernel);

}  // namespace
}  // namespace millrace
