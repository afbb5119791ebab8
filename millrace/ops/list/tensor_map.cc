#include "millrace/ops/list/tensor_map.h"

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/list/tensor_list.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// TensorFlow's format: keys and values in turn.
StatusOr<RefPtr<VariantValue>> DecodeTensorMap(const std::string&, const std::vector<Tensor>& tensors) {
  if (tensors.size() % 2 != 0) return InvalidArgument("the bytes of a TensorMap are damaged");
  RefPtr<TensorMap> map = MakeRef<TensorMap>();
  for (size_t i = 0; i < tensors.size(); i += 2) {
    MR_ASSIGN_OR_RETURN(std::string text, TensorMap::KeyText(tensors[i]));
    map->entries[std::move(text)] = {tensors[i], tensors[i + 1]};
  }
  return RefPtr<VariantValue>(std::move(map));
}

const VariantDecoder map_decoder("tensorflow::TensorMap", DecodeTensorMap);

StatusOr<const TensorMap*> MapInput(const KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  if (in.rank() != 0) {
    return InvalidArgument("input_handle must be a scalar, but has shape ", in.shape().ToString());
  }
  const TensorMap* map = in.scalar<Variant>().Get<TensorMap>();
  if (map == nullptr) {
    return InvalidArgument("Input handle is not a map. Saw: '", in.scalar<Variant>().DebugString(), "'");
  }
  return map;
}

// The map of input 0 as output 0, unshared so that this node may modify it: copied only if it is shared.
StatusOr<TensorMap*> TakeMap(KernelContext& ctx) {
  MR_ASSIGN_OR_RETURN(const TensorMap* const shared, MapInput(ctx));
  MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.ForwardOrAllocateOutput({0}, 0, Shape()));
  Variant& variant = out->scalar<Variant>();
  if (TensorMap* own = variant.GetUnique<TensorMap>()) return own;
  RefPtr<TensorMap> copy = MakeRef<TensorMap>();
  copy->entries = shared->entries;
  TensorMap* const result = copy.get();
  variant = Variant(std::move(copy));
  return result;
}

class EmptyTensorMapKernel : public Kernel {
 public:
  explicit EmptyTensorMapKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<Variant>() = Variant(MakeRef<TensorMap>());
    return absl::OkStatus();
  }
};

class TensorMapSizeKernel : public Kernel {
 public:
  explicit TensorMapSizeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorMap* const map, MapInput(ctx));
    const auto size = static_cast<int32_t>(map->entries.size());
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<int32_t>() = size;
    return absl::OkStatus();
  }
};

class TensorMapLookupKernel : public Kernel {
 public:
  explicit TensorMapLookupKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorMap* const map, MapInput(ctx));
    MR_ASSIGN_OR_RETURN(const std::string text, TensorMap::KeyText(ctx.input(1)));
    const auto it = map->entries.find(text);
    if (it == map->entries.end()) return InvalidArgument("Trying to lookup non-existent key.");
    const Tensor value = it->second.value;
    if (value.dtype() != ctx.output_type(0)) {
      return InvalidArgument("the value is ", DTypeName(value.dtype()), ", but ", DTypeName(ctx.output_type(0)),
                             " was asked for");
    }
    ctx.SetOutput(0, value);
    return absl::OkStatus();
  }
};

class TensorMapInsertKernel : public Kernel {
 public:
  explicit TensorMapInsertKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(std::string text, TensorMap::KeyText(ctx.input(1)));
    const TensorMap::Entry entry{ctx.input(1), ctx.input(2)};
    MR_ASSIGN_OR_RETURN(TensorMap* const map, TakeMap(ctx));
    map->entries[std::move(text)] = entry;
    return absl::OkStatus();
  }
};

class TensorMapEraseKernel : public Kernel {
 public:
  explicit TensorMapEraseKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorMap* const before, MapInput(ctx));
    MR_ASSIGN_OR_RETURN(const std::string text, TensorMap::KeyText(ctx.input(1)));
    if (!before->entries.contains(text)) return InvalidArgument("Trying to erase non-existent item.");
    MR_ASSIGN_OR_RETURN(TensorMap* const map, TakeMap(ctx));
    map->entries.erase(text);
    return absl::OkStatus();
  }
};

class TensorMapHasKeyKernel : public Kernel {
 public:
  explicit TensorMapHasKeyKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorMap* const map, MapInput(ctx));
    MR_ASSIGN_OR_RETURN(const std::string text, TensorMap::KeyText(ctx.input(1)));
    const bool found = map->entries.contains(text);
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<bool>() = found;
    return absl::OkStatus();
  }
};

class TensorMapStackKeysKernel : public Kernel {
 public:
  explicit TensorMapStackKeysKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorMap* const map, MapInput(ctx));
    if (map->entries.empty()) return InvalidArgument("TensorMapStackKeys cannot be called on empty map.");
    const Shape one = map->entries.begin()->second.key.shape();
    for (const auto& [text, entry] : map->entries) {
      if (entry.key.dtype() != ctx.output_type(0)) return InvalidArgument("Key does not match requested dtype.");
      if (entry.key.shape() != one) return InvalidArgument("Keys must all have the same shape.");
    }
    const RefPtr<VariantValue> held = ctx.input(0).scalar<Variant>().value();
    std::vector<int64_t> dims = {static_cast<int64_t>(map->entries.size())};
    dims.insert(dims.end(), one.dims().begin(), one.dims().end());
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, shape));
    int64_t at = 0;
    for (const auto& [text, entry] : map->entries) {
      CopyInto(entry.key, out, at);
      at += entry.key.num_elements();
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::string TensorMap::DebugString() const { return absl::StrCat("a map of ", entries.size(), " tensors"); }

Status TensorMap::Encode(std::string*, std::vector<Tensor>* tensors) const {
  for (const auto& [text, entry] : entries) {
    tensors->push_back(entry.key);
    tensors->push_back(entry.value);
  }
  return absl::OkStatus();
}

StatusOr<std::string> TensorMap::KeyText(const Tensor& key) {
  if (!IsPlain(key.dtype()) && key.dtype() != DType::kString) {
    return InvalidArgument("a tensor of type ", DTypeName(key.dtype()), " cannot be a key");
  }
  std::string text = absl::StrCat(DTypeName(key.dtype()), key.shape().ToString(), ":");
  if (key.dtype() == DType::kString) {
    for (const std::string& s : key.flat<std::string>()) absl::StrAppend(&text, s.size(), ":", s);
  } else {
    text.append(static_cast<const char*>(key.raw_data()), key.TotalBytes());
  }
  return text;
}

StatusOr<Variant> AddMaps(KernelContext& ctx, const TensorMap& a, const TensorMap& b) {
  RefPtr<TensorMap> sum = MakeRef<TensorMap>();
  sum->entries = a.entries;
  for (const auto& [text, entry] : b.entries) {
    const auto [it, is_new] = sum->entries.try_emplace(text, entry);
    if (is_new) continue;
    MR_ASSIGN_OR_RETURN(it->second.value, AddTensors(ctx, it->second.value, entry.value));
  }
  return Variant(std::move(sum));
}

StatusOr<Variant> ZerosLikeMap(KernelContext& ctx, const TensorMap& map) {
  RefPtr<TensorMap> zeros = MakeRef<TensorMap>();
  zeros->entries = map.entries;
  for (auto& [text, entry] : zeros->entries) {
    MR_ASSIGN_OR_RETURN(entry.value, ZerosLikeTensor(ctx, entry.value));
  }
  return Variant(std::move(zeros));
}

MILLRACE_OP(EmptyTensorMap)
    .Output("handle: variant")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A map without entries.");
MILLRACE_OP(TensorMapSize)
    .Input("input_handle: variant")
    .Output("size: int32")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The number of entries of a map.");
MILLRACE_OP(TensorMapLookup)
    .Input("input_handle: variant")
    .Input("key: key_dtype")
    .Output("value: value_dtype")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Summary("The value of a key; an error if the map does not have it.");
MILLRACE_OP(TensorMapInsert)
    .Input("input_handle: variant")
    .Input("key: key_dtype")
    .Input("value: value_dtype")
    .Output("output_handle: variant")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The map with a value for that key, in place of the one that it had.");
MILLRACE_OP(TensorMapErase)
    .Input("input_handle: variant")
    .Input("key: key_dtype")
    .Output("output_handle: variant")
    .Attr("key_dtype: type")
    .Attr("value_dtype: type")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The map without that key; an error if it does not have it.");
MILLRACE_OP(TensorMapHasKey)
    .Input("input_handle: variant")
    .Input("key: key_dtype")
    .Output("has_key: bool")
    .Attr("key_dtype: type")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Says whether a map has that key.");
MILLRACE_OP(TensorMapStackKeys)
    .Input("input_handle: variant")
    .Output("keys: key_dtype")
    .Attr("key_dtype: type")
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Summary("All keys of a map, which must have one type and shape, stacked.");
MILLRACE_KERNEL(EmptyTensorMap, kCpu, EmptyTensorMapKernel);
MILLRACE_KERNEL(TensorMapSize, kCpu, TensorMapSizeKernel);
MILLRACE_KERNEL(TensorMapLookup, kCpu, TensorMapLookupKernel);
MILLRACE_KERNEL(TensorMapInsert, kCpu, TensorMapInsertKernel);
MILLRACE_KERNEL(TensorMapErase, kCpu, TensorMapEraseKernel);
MILLRACE_KERNEL(TensorMapHasKey, kCpu, TensorMapHasKeyKernel);
MILLRACE_KERNEL(TensorMapStackKeys, kCpu, TensorMapStackKeysKernel);

}  // namespace millrace
