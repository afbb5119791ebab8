// _HistoryPush and _HistoryPop: the values that a loop saves for its gradient in each iteration.
#include <algorithm>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

class History : public VariantValue {
 public:
  absl::string_view TypeName() const override { return "millrace::History"; }
  std::string DebugString() const override { return absl::StrCat("a history of ", values.size(), " tensors"); }

  std::vector<Tensor> values;
};

// The history of input 0 as output 0, unshared so that this node may modify it; copied only if it is shared.
StatusOr<History*> TakeHistory(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  if (in.rank() != 0) return InvalidArgument("a history is a scalar, but it has shape ", in.shape().ToString());
  MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.ForwardOrAllocateOutput({0}, 0, Shape()));
  Variant& variant = out->scalar<Variant>();
  if (History* own = variant.GetUnique<History>()) return own;
  const History* shared = in.scalar<Variant>().Get<History>();
  if (shared == nullptr) return InvalidArgument("the input is not a history but ", in.scalar<Variant>().DebugString());
  RefPtr<History> copy = MakeRef<History>();
  copy->values = shared->values;
  History* const result = copy.get();
  variant = Variant(std::move(copy));
  return result;
}

class EmptyHistoryKernel : public Kernel {
 public:
  explicit EmptyHistoryKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<Variant>() = Variant(MakeRef<History>());
    return absl::OkStatus();
  }
};

class HistoryPushKernel : public Kernel {
 public:
  explicit HistoryPushKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(History* const history, TakeHistory(ctx));
    for (int i = 1; i < ctx.num_inputs(); ++i) history->values.push_back(ctx.input(i));
    return absl::OkStatus();
  }
};

class HistoryPopKernel : public Kernel {
 public:
  explicit HistoryPopKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(History* const history, TakeHistory(ctx));
    const size_t n = static_cast<size_t>(ctx.num_outputs()) - 1;
    std::vector<Tensor>& values = history->values;
    if (values.size() < n)
      return Internal("the history is over: ", n, " values are wanted, ", values.size(), " are left");
    const size_t first = values.size() - n;
    for (size_t i = 0; i < n; ++i) {
      if (values[first + i].dtype() != ctx.output_type(static_cast<int>(i) + 1)) {
        return Internal("value ", i, " of the history is ", DTypeName(values[first + i].dtype()));
      }
      ctx.SetOutput(static_cast<int>(i) + 1, std::move(values[first + i]));
    }
    values.resize(first);
    return absl::OkStatus();
  }
};

Status HistoryPopShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(UnknownShape(c));
  c.set_output(0, PartialShape::Scalar());
  MR_ASSIGN_OR_RETURN(const std::vector<PartialShape> shapes, c.Attr<std::vector<PartialShape>>("shapes"));
  for (int i = 1; i < c.num_outputs() && i <= static_cast<int>(shapes.size()); ++i) c.set_output(i, shapes[i - 1]);
  return absl::OkStatus();
}

MILLRACE_OP(_EmptyHistory)
    .Output("history: variant")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("An empty history.");

MILLRACE_OP(_HistoryPush)
    .Input("history: variant")
    .Input("values: T")
    .Output("longer: variant")
    .Attr("T: list(type) >= 1")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Saves the values of one iteration.");

MILLRACE_OP(_HistoryPop)
    .Input("history: variant")
    .Output("shorter: variant")
    .Output("values: T")
    .Attr("T: list(type) >= 1")
    .Attr("shapes: list(shape) = []")
    .Shape(HistoryPopShape)
    .NotDifferentiable()
    .Summary("Restores the values of the last saved iteration.");

MILLRACE_KERNEL(_EmptyHistory, kCpu, EmptyHistoryKernel);
MILLRACE_KERNEL(_HistoryPush, kCpu, HistoryPushKernel);
MILLRACE_KERNEL(_HistoryPop, kCpu, HistoryPopKernel);

}  // namespace
}  // namespace millrace
