// Where: the coordinates of the non-zero elements, in row-major order.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <typename T>
bool IsSet(const T& value) {
  return value != T{};
}

template <typename T>
Status FindSet(KernelContext& ctx, const Tensor& input) {
  const T* p = input.data<T>();
  const int64_t n = input.num_elements();
  const int rank = input.rank();
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += IsSet(p[i]) ? 1 : 0;
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({count, rank})));
  int64_t* to = out->data<int64_t>();
  IntList at(rank, 0);
  for (int64_t i = 0; i < n; ++i) {
    if (IsSet(p[i])) to = std::copy(at.begin(), at.end(), to);
    for (int d = rank - 1; d >= 0 && ++at[d] == input.dim(d); --d) at[d] = 0;
  }
  return absl::OkStatus();
}

class WhereKernel : public Kernel {
 public:
  explicit WhereKernel(KernelInit& init) {
    if (!DispatchType(PlainTypes(), init.input_type(0), [](auto) {})) {
      FailDType(init, init.input_type(0));
    }
  }
  Status Compute(KernelContext& ctx) override {
    Status status;
    DispatchType(PlainTypes(), ctx.input(0).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      status = FindSet<T>(ctx, ctx.input(0));
    });
    return status;
  }
};

Status WhereShape(ShapeContext& c) {
  c.set_output(0, PartialShape({-1, c.input(0).rank()}));
  return absl::OkStatus();
}

MILLRACE_OP(Where)
    .Input("input: T")
    .Output("index: int64")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
        "qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool")
    .Shape(WhereShape)
    .NotDifferentiable()
    .Summary("The coordinates of the non-zero elements.");
MILLRACE_KERNEL(Where, kCpu, WhereKernel);

}  // namespace
}  // namespace millrace
