#include "millrace/ops/list/optional.h"

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/list/tensor_list.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// TensorFlow's format: one byte that says whether there is a value, and its tensors.
StatusOr<RefPtr<VariantValue>> DecodeOptional(const std::string& metadata, const std::vector<Tensor>& tensors) {
  if (metadata.size() != 1) return InvalidArgument("the bytes of an Optional are damaged");
  if (metadata[0] == 0) return RefPtr<VariantValue>(MakeRef<OptionalValue>());
  return RefPtr<VariantValue>(MakeRef<OptionalValue>(tensors));
}

const VariantDecoder optional_decoder("tensorflow::data::Optional", DecodeOptional);

StatusOr<const OptionalValue*> OptionalInput(const KernelContext& ctx, int i) {
  const Tensor& in = ctx.input(i);
  if (in.rank() != 0) {
    return InvalidArgument("Input to an Optional op must be a scalar, but it has shape ", in.shape().ToString());
  }
  const OptionalValue* optional = in.scalar<Variant>().Get<OptionalValue>();
  if (optional == nullptr) {
    return InvalidArgument("Input is not an Optional. Saw: '", in.scalar<Variant>().DebugString(), "'");
  }
  return optional;
}

class OptionalFromValueKernel : public Kernel {
 public:
  explicit OptionalFromValueKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    std::vector<Tensor> components;
    for (int i = 0; i < ctx.num_inputs(); ++i) components.push_back(ctx.input(i));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<Variant>() = Variant(MakeRef<OptionalValue>(std::move(components)));
    return absl::OkStatus();
  }
};

class OptionalNoneKernel : public Kernel {
 public:
  explicit OptionalNoneKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<Variant>() = Variant(MakeRef<OptionalValue>());
    return absl::OkStatus();
  }
};

class OptionalHasValueKernel : public Kernel {
 public:
  explicit OptionalHasValueKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const OptionalValue* const optional, OptionalInput(ctx, 0));
    const bool has_value = optional->components.has_value();
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<bool>() = has_value;
    return absl::OkStatus();
  }
};

class OptionalGetValueKernel : public Kernel {
 public:
  explicit OptionalGetValueKernel(KernelInit& init) { init.Attr("output_shapes", &shapes_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const OptionalValue* const optional, OptionalInput(ctx, 0));
    if (!optional->components.has_value()) return InvalidArgument("The given optional does not have a value.");
    const std::vector<Tensor> components = *optional->components;
    if (static_cast<int>(components.size()) != ctx.num_outputs() || components.size() != shapes_.size()) {
      return InvalidArgument("The given optional has ", components.size(), " components, expected ", ctx.num_outputs(),
                             ".");
    }
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      const Tensor& t = components[i];
      if (t.dtype() != ctx.output_type(i)) {
        return InvalidArgument("The given optional does not match the expected type for component ", i,
                               ". Expected: ", DTypeName(ctx.output_type(i)), ". Actual: ", DTypeName(t.dtype()), ".");
      }
      if (!shapes_[i].IsCompatibleWith(t.shape())) {
        return InvalidArgument("The given optional does not match the expected shape for component ", i,
                               ". Expected: ", shapes_[i].ToString(), ". Actual: ", t.shape().ToString(), ".");
      }
    }
    for (int i = 0; i < ctx.num_outputs(); ++i) ctx.SetOutput(i, components[i]);
    return absl::OkStatus();
  }

 private:
  std::vector<PartialShape> shapes_;
};

Status OptionalGetValueShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const auto shapes, c.Attr<std::vector<PartialShape>>("output_shapes"));
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return InvalidArgument("`output_shapes` must be the same length as `output_types` (", shapes.size(), " vs. ",
                           c.num_outputs(), ")");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[i]);
  return absl::OkStatus();
}

MILLRACE_OP(OptionalFromValue)
    .Summary("An Optional that has a value: a tuple of tensors.")
    .Input("components: Toutput_types")
    .Output("optional: variant")
    .Attr("Toutput_types: list(type) >= 1")
    .Shape(ScalarShape)
    .NotDifferentiable();
MILLRACE_OP(OptionalNone)
    .Summary("An Optional without a value.")
    .Output("optional: variant")
    .Shape(ScalarShape)
    .NotDifferentiable();
MILLRACE_OP(OptionalHasValue)
    .Summary("Says whether an Optional has a value.")
    .Input("optional: variant")
    .Output("has_value: bool")
    .Shape(ScalarShape)
    .NotDifferentiable();
MILLRACE_OP(OptionalGetValue)
    .Summary("The value of an Optional; an error if it has none.")
    .Input("optional: variant")
    .Output("components: output_types")
    .Attr("output_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Shape(OptionalGetValueShape)
    .NotDifferentiable();
MILLRACE_KERNEL(OptionalFromValue, kCpu, OptionalFromValueKernel);
MILLRACE_KERNEL(OptionalNone, kCpu, OptionalNoneKernel);
MILLRACE_KERNEL(OptionalHasValue, kCpu, OptionalHasValueKernel);
MILLRACE_KERNEL(OptionalGetValue, kCpu, OptionalGetValueKernel);

}  // namespace

std::string OptionalValue::DebugString() const {
  return components.has_value() ? absl::StrCat("an Optional of ", components->size(), " tensors")
                                : "an Optional without a value";
}

Status OptionalValue::Encode(std::string* metadata, std::vector<Tensor>* tensors) const {
  metadata->push_back(components.has_value() ? 1 : 0);
  if (components.has_value()) tensors->insert(tensors->end(), components->begin(), components->end());
  return absl::OkStatus();
}

StatusOr<Variant> AddOptionals(KernelContext& ctx, const OptionalValue& a, const OptionalValue& b) {
  if (a.components.has_value() != b.components.has_value()) {
    return InvalidArgument("Cannot add optionals because one has a value and the other doesn't.");
  }
  if (!a.components.has_value()) return Variant(MakeRef<OptionalValue>());
  if (a.components->size() != b.components->size()) {
    return InvalidArgument("Cannot add optionals because they have different numbers of components (",
                           a.components->size(), " vs. ", b.components->size(), ").");
  }
  std::vector<Tensor> sums;
  for (size_t i = 0; i < a.components->size(); ++i) {
    MR_ASSIGN_OR_RETURN(sums.emplace_back(), AddTensors(ctx, (*a.components)[i], (*b.components)[i]));
  }
  return Variant(MakeRef<OptionalValue>(std::move(sums)));
}

StatusOr<Variant> ZerosLikeOptional(KernelContext& ctx, const OptionalValue& v) {
  if (!v.components.has_value()) return Variant(MakeRef<OptionalValue>());
  std::vector<Tensor> zeros;
  for (const Tensor& t : *v.components) {
    MR_ASSIGN_OR_RETURN(zeros.emplace_back(), ZerosLikeTensor(ctx, t));
  }
  return Variant(MakeRef<OptionalValue>(std::move(zeros)));
}

}  // namespace millrace
