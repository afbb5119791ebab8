#include "millrace/ops/list/tensor_list.h"

#include <cstring>

#include "millrace/base/varint.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// TensorFlow's format: the number of unset elements and their indices, the type, the limit, the shape.
StatusOr<RefPtr<VariantValue>> DecodeTensorList(const std::string& metadata, const std::vector<Tensor>& tensors) {
  absl::string_view in = metadata;
  const auto bad = [] { return InvalidArgument("the bytes of a TensorList are damaged"); };
  uint64_t unset = 0;
  if (!TakeVarint(&in, &unset) || unset > in.size()) return bad();
  const uint64_t total = unset + tensors.size();
  std::vector<bool> is_unset(total, false);
  for (uint64_t k = 0; k < unset; ++k) {
    uint64_t at = 0;
    if (!TakeVarint(&in, &at) || at >= total || is_unset[at]) return bad();
    is_unset[at] = true;
  }
  uint64_t dtype = 0, limit = 0;
  if (!TakeVarint(&in, &dtype) || !TakeVarint(&in, &limit)) return bad();
  pb::TensorShapeProto shape;
  if (!shape.ParseFromArray(in.data(), static_cast<int>(in.size()))) return bad();
  RefPtr<TensorList> list = MakeRef<TensorList>();
  list->element_dtype = static_cast<DType>(dtype);
  list->max_num_elements = static_cast<int64_t>(static_cast<int32_t>(limit));
  MR_ASSIGN_OR_RETURN(list->element_shape, PartialShape::FromProto(shape));
  size_t next = 0;
  for (uint64_t i = 0; i < total; ++i) {
    list->tensors.push_back(is_unset[i] ? Tensor() : tensors[next++]);
    if (!is_unset[i]) MR_RETURN_IF_ERROR(list->CheckElement(list->tensors.back()));
  }
  return RefPtr<VariantValue>(std::move(list));
}

const VariantDecoder decoder("tensorflow::TensorList", DecodeTensorList);

StatusOr<TensorList*> TakeListAs(KernelContext& ctx, const DType* element_dtype) {
  const StatusOr<const TensorList*> shared =
      element_dtype != nullptr ? ListInput(ctx, 0, *element_dtype) : ListInput(ctx, 0);
  MR_RETURN_IF_ERROR(shared.status());
  MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.ForwardOrAllocateOutput({0}, 0, Shape()));
  Variant& variant = out->scalar<Variant>();
  if (TensorList* own = variant.GetUnique<TensorList>()) return own;
  RefPtr<TensorList> copy = (*shared)->Like();
  copy->tensors = (*shared)->tensors;
  TensorList* const result = copy.get();
  variant = Variant(std::move(copy));
  return result;
}

}  // namespace

std::string TensorList::DebugString() const {
  return absl::StrCat("a list of ", tensors.size(), " ", DTypeName(element_dtype), " tensors of shape ",
                      element_shape.ToString());
}

Status TensorList::Encode(std::string* metadata, std::vector<Tensor>* out) const {
  std::vector<uint64_t> unset;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].IsInitialized()) {
      out->push_back(tensors[i]);
    } else {
      unset.push_back(i);
    }
  }
  PutVarint(metadata, unset.size());
  for (const uint64_t i : unset) PutVarint(metadata, i);
  PutVarint(metadata, static_cast<uint64_t>(element_dtype));
  PutVarint(metadata, static_cast<uint64_t>(max_num_elements));
  pb::TensorShapeProto shape;
  element_shape.ToProto(&shape);
  shape.AppendToString(metadata);
  return absl::OkStatus();
}

Status TensorList::CheckElement(const Tensor& t) const {
  if (t.dtype() != element_dtype) {
    return InvalidArgument("Invalid data types; op elements ", DTypeName(t.dtype()), " but list elements ",
                           DTypeName(element_dtype));
  }
  if (!element_shape.IsCompatibleWith(t.shape())) {
    return InvalidArgument("Tried to put a tensor of shape ", t.shape().ToString(),
                           " into a list whose elements have shape ", element_shape.ToString());
  }
  return absl::OkStatus();
}

RefPtr<TensorList> TensorList::Like() const {
  RefPtr<TensorList> list = MakeRef<TensorList>();
  list->element_dtype = element_dtype;
  list->element_shape = element_shape;
  list->max_num_elements = max_num_elements;
  return list;
}

StatusOr<const TensorList*> ListInput(const KernelContext& ctx, int i) {
  const Tensor& in = ctx.input(i);
  if (in.rank() != 0) return InvalidArgument("Input list must be a scalar saw: ", in.shape().ToString());
  const TensorList* list = in.scalar<Variant>().Get<TensorList>();
  if (list == nullptr)
    return InvalidArgument("Input handle is not a list. Saw: '", in.scalar<Variant>().DebugString(), "'");
  return list;
}

StatusOr<const TensorList*> ListInput(const KernelContext& ctx, int i, DType element_dtype) {
  MR_ASSIGN_OR_RETURN(const TensorList* const list, ListInput(ctx, i));
  if (list->element_dtype != element_dtype) {
    return InvalidArgument("Invalid data types; op elements ", DTypeName(element_dtype), " but list elements ",
                           DTypeName(list->element_dtype));
  }
  return list;
}

StatusOr<TensorList*> TakeList(KernelContext& ctx, DType element_dtype) { return TakeListAs(ctx, &element_dtype); }
StatusOr<TensorList*> TakeList(KernelContext& ctx) { return TakeListAs(ctx, nullptr); }

StatusOr<TensorList*> NewList(KernelContext& ctx, int i, DType dtype, PartialShape shape) {
  MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(i, Shape()));
  RefPtr<TensorList> list = MakeRef<TensorList>();
  list->element_dtype = dtype;
  list->element_shape = std::move(shape);
  TensorList* const result = list.get();
  out->scalar<Variant>() = Variant(std::move(list));
  return result;
}

StatusOr<PartialShape> ShapeFromTensor(const Tensor& t) {
  const auto at = [&](int64_t i) -> int64_t {
    return t.dtype() == DType::kInt32 ? t.data<int32_t>()[i] : t.data<int64_t>()[i];
  };
  if (t.dtype() != DType::kInt32 && t.dtype() != DType::kInt64)
    return InvalidArgument("element_shape must be int32 or int64");
  if (t.rank() == 0) {
    if (at(0) == -1) return PartialShape();
    return InvalidArgument("The only valid scalar shape tensor is the fully unknown shape specified as -1.");
  }
  if (t.rank() != 1) return InvalidArgument("Shape must be at most rank 1 but is rank ", t.rank());
  if (t.num_elements() > Shape::kMaxRank)
    return InvalidArgument("a shape of rank ", t.num_elements(), " is not possible");
  PartialShape shape = PartialShape::Scalar();
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    if (at(i) < -1) return InvalidArgument("Dimension ", i, " of the element shape is ", at(i), ", below -1");
    shape.AddDim(at(i));
  }
  return shape;
}

StatusOr<PartialShape> CommonShape(const TensorList& list, const PartialShape& wanted, bool with_elements) {
  StatusOr<PartialShape> merged = wanted.MergeWith(list.element_shape);
  if (!merged.ok()) return WithPrefix("the list's elements have another shape: ", merged.status());
  PartialShape shape = *merged;
  if (!with_elements || shape.IsFullyDefined()) return shape;
  for (const Tensor& t : list.tensors) {
    if (!t.IsInitialized()) continue;
    merged = shape.MergeWith(t.shape());
    if (!merged.ok()) return WithPrefix("Tensors with different shapes in one list: ", merged.status());
    shape = *merged;
  }
  return shape;
}

StatusOr<Tensor> ListElement(KernelContext& ctx, const TensorList& list, int64_t i, const PartialShape& wanted) {
  const Tensor& t = list.tensors[i];
  if (t.IsInitialized()) {
    if (!wanted.IsCompatibleWith(t.shape())) {
      return InvalidArgument("Incompatible shapes: element ", i, " of the list has shape ", t.shape().ToString(),
                             ", but ", wanted.ToString(), " is wanted");
    }
    return t;
  }
  MR_ASSIGN_OR_RETURN(const PartialShape shape, CommonShape(list, wanted, true));
  if (!shape.IsFullyDefined()) {
    return InvalidArgument("Trying to read an uninitialized tensor but element_shape is not fully defined: ",
                           shape.ToString());
  }
  return Zeros(ctx, list.element_dtype, shape.AsShape());
}

StatusOr<Tensor> Zeros(KernelContext& ctx, DType dtype, const Shape& shape) {
  MR_ASSIGN_OR_RETURN(Tensor t, ctx.AllocateTemp(dtype, shape));
  if (IsPlain(dtype)) std::memset(t.raw_data(), 0, t.TotalBytes());
  return t;
}

void CopyInto(const Tensor& from, Tensor* to, int64_t offset) {
  const int64_t n = from.num_elements();
  if (n == 0) return;
  if (IsPlain(from.dtype())) {
    std::memcpy(static_cast<char*>(to->raw_data()) + offset * static_cast<int64_t>(SizeOf(from.dtype())),
                from.raw_data(), from.TotalBytes());
  } else if (from.dtype() == DType::kString) {
    std::copy_n(from.data<std::string>(), n, to->data<std::string>() + offset);
  } else if (from.dtype() == DType::kVariant) {
    std::copy_n(from.data<Variant>(), n, to->data<Variant>() + offset);
  } else {
    std::copy_n(from.data<ResourceHandle>(), n, to->data<ResourceHandle>() + offset);
  }
}

}  // namespace millrace
