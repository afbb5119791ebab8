// RaggedRange: a row of numbers for each start, limit and delta.
#include <cmath>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/ragged/splits.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::ragged {
namespace {

using RangeTypes = Types<bfloat16, float, double, int32_t, int64_t>;

class RaggedRangeKernel : public Kernel {
 public:
  explicit RaggedRangeKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    static constexpr const char* kNames[] = {"starts", "limits", "deltas"};
    int64_t rows = -1;
    for (int i = 0; i < 3; ++i) {
      const Tensor& t = ctx.input(i);
      if (t.rank() > 1) return InvalidArgument(kNames[i], " must be a scalar or vector");
      if (t.rank() == 0) continue;
      if (rows >= 0 && rows != t.dim(0)) {
        return InvalidArgument("starts, limits, and deltas must have the same shape");
      }
      rows = t.dim(0);
    }
    Status status;
    DispatchType(RangeTypes{}, ctx.input(0).dtype(),
                 [&](auto tag) { status = Fill<typename decltype(tag)::type>(ctx, rows < 0 ? 1 : rows); });
    return status;
  }

 private:
  template <typename T>
  static Status Fill(KernelContext& ctx, int64_t rows) {
    using C = std::conditional_t<std::is_integral_v<T>, int64_t, double>;
    const auto at = [&](int i, int64_t row) {
      return static_cast<C>(ctx.input(i).data<T>()[ctx.input(i).rank() == 0 ? 0 : row]);
    };
    Splits splits = {0};
    for (int64_t r = 0; r < rows; ++r) {
      const C start = at(0, r), limit = at(1, r), delta = at(2, r);
      if (delta == 0) return InvalidArgument("Requires delta != 0");
      const double size = (delta > 0 ? limit > start : limit < start)
                              ? std::ceil(std::abs((static_cast<double>(limit) - static_cast<double>(start)) /
                                                   static_cast<double>(delta)))
                              : 0;
      if (size + static_cast<double>(splits.back()) > static_cast<double>(int64_t{1} << 40)) {
        return InvalidArgument("the ranges have too many values: row ", r, " alone has ", size);
      }
      splits.push_back(splits.back() + static_cast<int64_t>(size));
    }
    MR_RETURN_IF_ERROR(GiveInts(ctx, 0, splits));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(1, Shape({splits.back()})));
    T* to = out->data<T>();
    for (int64_t r = 0; r < rows; ++r) {
      T value = ctx.input(0).data<T>()[ctx.input(0).rank() == 0 ? 0 : r];
      const T delta = ctx.input(2).data<T>()[ctx.input(2).rank() == 0 ? 0 : r];
      for (int64_t k = splits[r]; k < splits[r + 1]; ++k) {
        *to++ = value;
        value = static_cast<T>(value + delta);
      }
    }
    return absl::OkStatus();
  }
};

Status RaggedRangeShape(ShapeContext& c) {
  int64_t rows = 1;
  bool known = true;
  for (int i = 0; i < 3; ++i) {
    const PartialShape& s = c.input(i);
    if (!s.known_rank()) {
      known = false;
    } else if (s.rank() > 1) {
      return InvalidArgument("starts, limits and deltas must be scalars or vectors");
    } else if (s.rank() == 1) {
      if (s.dim(0) < 0) known = false;
      rows = s.dim(0);
    }
  }
  c.set_output(0, PartialShape({known ? rows + 1 : -1}));
  c.set_output(1, PartialShape({-1}));
  return absl::OkStatus();
}

MILLRACE_OP(RaggedRange)
    .Summary("Rows of numbers from starts to limits by deltas.")
    .Input("starts: T")
    .Input("limits: T")
    .Input("deltas: T")
    .Output("rt_nested_splits: Tsplits")
    .Output("rt_dense_values: T")
    .Attr("T: {bfloat16, float, double, int32, int64} = DT_INT32")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Shape(RaggedRangeShape)
    .NotDifferentiable();
MILLRACE_KERNEL(RaggedRange, kCpu, RaggedRangeKernel);

}  // namespace
}  // namespace millrace::ragged
