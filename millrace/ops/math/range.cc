// Range, LinSpace.
#include <cmath>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {
namespace {

using RangeTypes = Types<int32_t, int64_t, float, double, half, bfloat16>;

// How many steps of `delta` fit from start up to, not including, limit.
template <typename T>
StatusOr<int64_t> RangeSize(T start, T limit, T delta) {
  if (delta == T(0)) return InvalidArgument("Requires delta != 0: 0");
  if (delta > T(0) ? start > limit : start < limit) {
    return InvalidArgument("Requires start ", delta > T(0) ? "<=" : ">=", " limit when delta ",
                           delta > T(0) ? ">" : "<", " 0: ", start, "/", limit);
  }
  if constexpr (std::is_integral_v<T>) {
    const uint64_t distance = delta > 0 ? static_cast<uint64_t>(limit) - static_cast<uint64_t>(start)
                                        : static_cast<uint64_t>(start) - static_cast<uint64_t>(limit);
    const uint64_t step = delta > 0 ? static_cast<uint64_t>(delta) : 0 - static_cast<uint64_t>(delta);
    const uint64_t size = distance / step + (distance % step != 0 ? 1 : 0);
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return InvalidArgument("Requires ((limit - start) / delta) <= ", std::numeric_limits<int64_t>::max());
    }
    return static_cast<int64_t>(size);
  } else {
    const double size = std::ceil(std::fabs((static_cast<double>(limit) - start) / delta));
    if (!(size <= static_cast<double>(std::numeric_limits<int64_t>::max() / 2))) {
      return InvalidArgument("Requires ((limit - start) / delta) <= ", std::numeric_limits<int64_t>::max());
    }
    return static_cast<int64_t>(size);
  }
}

template <typename T>
StatusOr<int64_t> RangeSizeOf(const Tensor& start, const Tensor& limit, const Tensor& delta) {
  using C = ComputeType<T>;
  return RangeSize<C>(static_cast<C>(start.scalar<T>()), static_cast<C>(limit.scalar<T>()),
                      static_cast<C>(delta.scalar<T>()));
}

class RangeKernel : public Kernel {
 public:
  explicit RangeKernel(KernelInit& init) {
    if (!DispatchType(RangeTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    static constexpr const char* kNames[] = {"start", "limit", "delta"};
    for (int i = 0; i < 3; ++i) {
      if (ctx.input(i).num_elements() != 1) {
        return InvalidArgument(kNames[i], " must be a scalar, not shape ", ctx.input(i).shape().ToString());
      }
    }
    Status status;
    DispatchType(RangeTypes{}, ctx.input(0).dtype(),
                 [&](auto tag) { status = Fill<typename decltype(tag)::type>(ctx); });
    return status;
  }

 private:
  template <typename T>
  static Status Fill(KernelContext& ctx) {
    MR_ASSIGN_OR_RETURN(const int64_t size, RangeSizeOf<T>(ctx.input(0), ctx.input(1), ctx.input(2)));
    using C = ComputeType<T>;
    const C start = static_cast<C>(ctx.input(0).scalar<T>()), delta = static_cast<C>(ctx.input(2).scalar<T>());
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, Shape({size})));
    T* out = output->data<T>();
    for (int64_t i = 0; i < size; ++i) out[i] = static_cast<T>(start + static_cast<C>(i) * delta);
    return absl::OkStatus();
  }
};

Status RangeShape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  const Tensor *start = c.constant(0), *limit = c.constant(1), *delta = c.constant(2);
  c.set_output(0, PartialShape({PartialShape::kUnknown}));
  if (start == nullptr || limit == nullptr || delta == nullptr) return absl::OkStatus();
  Status status;
  DispatchType(RangeTypes{}, start->dtype(), [&](auto tag) {
    const StatusOr<int64_t> size = RangeSizeOf<typename decltype(tag)::type>(*start, *limit, *delta);
    status = size.status();
    if (size.ok()) c.set_output(0, PartialShape({*size}));
  });
  return status;
}

using LinSpaceTypes = Types<float, double, bfloat16, half>;

class LinSpaceKernel : public Kernel {
 public:
  explicit LinSpaceKernel(KernelInit& init) {
    if (!DispatchType(LinSpaceTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    static constexpr const char* kNames[] = {"start", "stop", "num"};
    for (int i = 0; i < 3; ++i) {
      if (ctx.input(i).rank() != 0) {
        return InvalidArgument(kNames[i], " must be a scalar, not shape ", ctx.input(i).shape().ToString());
      }
    }
    const int64_t num = IntAt(ctx.input(2), 0);
    if (num <= 0) return InvalidArgument("Requires num > 0: ", num);
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, Shape({num})));
    DispatchType(LinSpaceTypes{}, output->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ComputeType<T>;
      const C start = static_cast<C>(ctx.input(0).scalar<T>()), stop = static_cast<C>(ctx.input(1).scalar<T>());
      const C step = num > 1 ? (stop - start) / static_cast<C>(num - 1) : C(0);
      T* out = output->data<T>();
      for (int64_t i = 0; i < num; ++i) out[i] = static_cast<T>(start + step * static_cast<C>(i));
      if (num > 1) out[num - 1] = static_cast<T>(stop);
    });
    return absl::OkStatus();
  }
};

Status LinSpaceShape(ShapeContext& c) {
  for (int i = 0; i < 3; ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  const Tensor* num = c.constant(2);
  if (num != nullptr && IntAt(*num, 0) <= 0) return InvalidArgument("Requires num > 0: ", IntAt(*num, 0));
  c.set_output(0, PartialShape({num == nullptr ? PartialShape::kUnknown : IntAt(*num, 0)}));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(Range)
    .Input("start: Tidx")
    .Input("limit: Tidx")
    .Input("delta: Tidx")
    .Output("output: Tidx")
    .Attr(
        "Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, "
        "uint64} = int32")
    .Shape(RangeShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("start, start + delta, ... up to, not including, limit");
MILLRACE_OP(LinSpace)
    .Input("start: T")
    .Input("stop: T")
    .Input("num: Tidx")
    .Output("output: T")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(LinSpaceShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("num values, evenly spaced from start to stop");

MILLRACE_KERNEL(Range, kCpu, RangeKernel);
MILLRACE_HOST_KERNEL(Range, kCuda, "Tidx", DType::kInt32);
MILLRACE_KERNEL(LinSpace, kCpu, LinSpaceKernel);

}  // namespace millrace
