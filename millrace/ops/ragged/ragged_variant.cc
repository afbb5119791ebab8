// RaggedTensorToVariant, RaggedTensorFromVariant: ragged tensors, or each of their rows, as variant values.
#include <algorithm>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/list/tensor_list.h"
#include "millrace/ops/ragged/splits.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/variant.h"

namespace millrace::ragged {
namespace {

class RaggedValue : public VariantValue {
 public:
  absl::string_view TypeName() const override { return "RaggedTensorVariant"; }
  std::string DebugString() const override {
    return absl::StrCat("a ragged tensor of ragged rank ", nested.size(), " with ", DTypeName(values.dtype()),
                        " values");
  }
  // The splits, then the values, as TensorFlow does.
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override {
    for (const Splits& splits : nested) tensors->push_back(Tensor::FromVector(splits));
    tensors->push_back(values);
    return absl::OkStatus();
  }

  std::vector<Splits> nested;
  Tensor values;
};

StatusOr<RefPtr<VariantValue>> DecodeRagged(const std::string& metadata, const std::vector<Tensor>& tensors) {
  if (tensors.empty()) return InvalidArgument("the bytes of a ragged tensor are damaged");
  auto value = MakeRef<RaggedValue>();
  for (size_t i = 0; i + 1 < tensors.size(); ++i) {
    const DType t = tensors[i].dtype();
    if (t != DType::kInt32 && t != DType::kInt64)
      return InvalidArgument("the splits of a ragged tensor are no integers");
    MR_ASSIGN_OR_RETURN(value->nested.emplace_back(), SplitsOf(tensors[i]));
  }
  value->values = tensors.back();
  return RefPtr<VariantValue>(std::move(value));
}

const VariantDecoder ragged_decoder("RaggedTensorVariant", DecodeRagged);

// Rows [begin, end) of level `first` of `nested` and below, as a value of its own.
RefPtr<RaggedValue> Part(const std::vector<Splits>& nested, size_t first, const Tensor& values, int64_t begin,
                         int64_t end) {
  auto part = MakeRef<RaggedValue>();
  for (size_t l = first; l < nested.size(); ++l) {
    Splits own;
    for (int64_t r = begin; r <= end; ++r) own.push_back(nested[l][r] - nested[l][begin]);
    begin = nested[l][begin];
    end = begin + own.back();
    part->nested.push_back(std::move(own));
  }
  part->values = values.Slice(begin, end);
  return part;
}

class RaggedToVariantKernel : public Kernel {
 public:
  explicit RaggedToVariantKernel(KernelInit& init) {
    init.Attr("RAGGED_RANK", &ragged_rank_);
    init.Attr("batched_input", &batched_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& values = ctx.input(ragged_rank_);
    std::vector<Splits> nested;
    if (ragged_rank_ > 0) {
      MR_ASSIGN_OR_RETURN(nested, NestedSplits(ctx, 0, ragged_rank_, values));
    }
    if (!batched_) {
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
      auto whole = MakeRef<RaggedValue>();
      whole->nested = std::move(nested);
      whole->values = values;
      out->scalar<Variant>() = Variant(std::move(whole));
      return absl::OkStatus();
    }
    if (values.rank() < 1) return InvalidArgument("Batched input must have rank >= 1, but has none");
    const int64_t n = nested.empty() ? values.dim(0) : static_cast<int64_t>(nested[0].size()) - 1;
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({n})));
    for (int64_t i = 0; i < n; ++i) {
      RefPtr<RaggedValue> part;
      if (nested.empty()) {
        part = MakeRef<RaggedValue>();
        part->values = values.Row(i);
      } else {
        part = Part(nested, 1, values, nested[0][i], nested[0][i + 1]);
      }
      out->data<Variant>()[i] = Variant(std::move(part));
    }
    return absl::OkStatus();
  }

 private:
  int ragged_rank_ = 0;
  bool batched_ = false;
};

// The ragged values of a tensor of variants.
StatusOr<std::vector<const RaggedValue*>> RaggedInputs(const Tensor& t, DType dtype) {
  std::vector<const RaggedValue*> parts;
  for (const Variant& v : t.flat<Variant>()) {
    const auto* part = v.Get<RaggedValue>();
    if (part == nullptr) {
      return InvalidArgument("Input Variant element at index ", parts.size(),
                             " doesn't hold a RaggedTensorVariant: ", v.DebugString());
    }
    if (part->values.dtype() != dtype) {
      return InvalidArgument("Expected values Tensor dtype: ", DTypeName(dtype),
                             ", found: ", DTypeName(part->values.dtype()));
    }
    parts.push_back(part);
  }
  return parts;
}

class RaggedFromVariantKernel : public Kernel {
 public:
  explicit RaggedFromVariantKernel(KernelInit& init) {
    init.Attr("input_ragged_rank", &input_rank_);
    init.Attr("output_ragged_rank", &output_rank_);
    init.Attr("Tvalues", &dtype_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& in = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const std::vector<const RaggedValue*> parts, RaggedInputs(in, dtype_));
    const int inner = input_rank_ == -1 ? output_rank_ - in.rank() : input_rank_;
    if (inner < 0) {
      return InvalidArgument(
          "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= 0, "
          "found output_ragged_rank: ",
          output_rank_, ", encoded_variant.dims(): ", in.rank(), ", inferred input_ragged_rank: ", inner);
    }
    if (in.rank() + inner != output_rank_) {
      return InvalidArgument(
          "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); "
          "output_ragged_rank: ",
          output_rank_, ", input_ragged_rank: ", inner, ", encoded_variant.dims(): ", in.rank(), ".");
    }
    for (const RaggedValue* part : parts) {
      if (static_cast<int>(part->nested.size()) != inner) {
        return InvalidArgument("Encoded input RaggedTensorVariant has ragged_rank=", part->nested.size(),
                               ".  Expected ragged_rank=", inner, ".");
      }
    }
    if (in.rank() == 0) return Give(ctx, parts[0]->nested, parts[0]->values);
    std::vector<Splits> nested;
    int64_t rows = 1;
    for (int d = 0; d + 1 < in.rank(); ++d) {
      rows *= in.dim(d);
      Splits uniform = {0};
      for (int64_t r = 1; r <= rows; ++r) uniform.push_back(r * in.dim(d + 1));
      nested.push_back(std::move(uniform));
    }
    return Join(ctx, parts, static_cast<size_t>(inner), std::move(nested));
  }

 private:
  // Appends the level of the parts themselves and their own levels.
  Status Join(KernelContext& ctx, const std::vector<const RaggedValue*>& parts, size_t inner,
              std::vector<Splits> nested) const {
    Splits outer = {0};
    std::vector<Splits> below(inner, Splits{0});
    int64_t total = 0;
    for (const RaggedValue* part : parts) {
      if (part->values.rank() < 1) return InvalidArgument("the values of a ragged tensor's row are a scalar");
      const int64_t rows = inner > 0 ? static_cast<int64_t>(part->nested[0].size()) - 1 : part->values.dim(0);
      outer.push_back(outer.back() + rows);
      for (size_t l = 0; l < inner; ++l) {
        const int64_t shift = below[l].back();
        for (size_t r = 1; r < part->nested[l].size(); ++r) below[l].push_back(part->nested[l][r] + shift);
      }
      total += part->values.dim(0);
      if (part->values.shape().dims().subspan(1) != parts[0]->values.shape().dims().subspan(1)) {
        return InvalidArgument("All flat_values must have compatible shapes.  Shape at index 0: ",
                               parts[0]->values.shape().ToString(), ".  Shape here: ", part->values.shape().ToString());
      }
    }
    nested.push_back(std::move(outer));
    for (Splits& splits : below) nested.push_back(std::move(splits));
    Shape shape({0});
    if (!parts.empty()) {
      MR_ASSIGN_OR_RETURN(shape, WithRows(parts[0]->values, total));
    }
    MR_ASSIGN_OR_RETURN(Tensor values, ctx.AllocateTemp(dtype_, shape));
    int64_t at = 0;
    for (const RaggedValue* part : parts) {
      CopyRows(part->values, 0, part->values.dim(0), &values, at);
      at += part->values.dim(0);
    }
    return Give(ctx, nested, values);
  }

  static Status Give(KernelContext& ctx, const std::vector<Splits>& nested, const Tensor& values) {
    for (size_t l = 0; l < nested.size(); ++l) MR_RETURN_IF_ERROR(GiveInts(ctx, static_cast<int>(l), nested[l]));
    ctx.SetOutput(static_cast<int>(nested.size()), values);
    return absl::OkStatus();
  }

  int input_rank_ = -1, output_rank_ = 0;
  DType dtype_ = DType::kInvalid;
};

// The gradients of the rows, put together.
class RaggedVariantGradKernel : public Kernel {
 public:
  explicit RaggedVariantGradKernel(KernelInit& init) { init.Attr("Tvalues", &dtype_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor& grads = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const std::vector<const RaggedValue*> parts, RaggedInputs(grads, dtype_));
    MR_ASSIGN_OR_RETURN(const Splits splits, SplitsOf(ctx.input(1)));
    Shape::Dims dims;
    for (const int64_t d : IntsOf(ctx.input(2))) dims.push_back(d);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (grads.rank() == 0) {
      if (parts[0]->values.num_elements() != shape.num_elements()) {
        return InvalidArgument("the gradient has ", parts[0]->values.num_elements(), " values, not ",
                               shape.num_elements());
      }
      CopyInto(parts[0]->values, out, 0);
      return absl::OkStatus();
    }
    if (splits.size() != parts.size() + 1 || shape.rank() < 1 || splits.back() != shape.dim(0)) {
      return InvalidArgument("row_splits of ", splits.size() - 1, " rows do not fit ", parts.size(), " gradients");
    }
    const int64_t row = shape.dim(0) == 0 ? 0 : shape.num_elements() / shape.dim(0);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i]->values.num_elements() != (splits[i + 1] - splits[i]) * row) {
        return InvalidArgument("gradient ", i, " has ", parts[i]->values.num_elements(), " values, but its row has ",
                               (splits[i + 1] - splits[i]) * row);
      }
      CopyInto(parts[i]->values, out, splits[i] * row);
    }
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
};

Status RaggedToVariantShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool batched, c.Attr<bool>("batched_input"));
  c.set_output(0, batched ? PartialShape({-1}) : PartialShape::Scalar());
  return absl::OkStatus();
}

Status RaggedFromVariantShape(ShapeContext& c) {
  // The last one, the values, stays unknown.
  for (int i = 0; i + 1 < c.num_outputs(); ++i) c.set_output(i, PartialShape({-1}));
  return absl::OkStatus();
}

Status RaggedVariantGradShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(2));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

MILLRACE_OP(RaggedTensorToVariant)
    .Summary("A ragged tensor, or each of its rows, as a variant.")
    .Input("rt_nested_splits: RAGGED_RANK * Tsplits")
    .Input("rt_dense_values: Tvalues")
    .Output("encoded_ragged: variant")
    .Attr("RAGGED_RANK: int >= 0")
    .Attr("Tvalues: type")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Attr("batched_input: bool")
    .Shape(RaggedToVariantShape);
MILLRACE_OP(RaggedTensorFromVariant)
    .Summary("The ragged tensor in variants.")
    .Input("encoded_ragged: variant")
    .Output("output_nested_splits: output_ragged_rank * Tsplits")
    .Output("output_dense_values: Tvalues")
    .Attr("input_ragged_rank: int >= -1")
    .Attr("output_ragged_rank: int >= 0")
    .Attr("Tvalues: type")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Shape(RaggedFromVariantShape);
MILLRACE_OP(RaggedTensorToVariantGradient)
    .Summary("The gradient of RaggedTensorToVariant.")
    .Input("encoded_ragged_grad: variant")
    .Input("row_splits: Tsplits")
    .Input("dense_values_shape: int32")
    .Output("dense_values_grad: Tvalues")
    .Attr("Tvalues: type")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Shape(RaggedVariantGradShape)
    .NotDifferentiable();
MILLRACE_KERNEL(RaggedTensorToVariant, kCpu, RaggedToVariantKernel);
MILLRACE_KERNEL(RaggedTensorFromVariant, kCpu, RaggedFromVariantKernel);
MILLRACE_KERNEL(RaggedTensorToVariantGradient, kCpu, RaggedVariantGradKernel);

}  // namespace
}  // namespace millrace::ragged
