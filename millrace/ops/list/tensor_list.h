// TensorList: lists of tensors as variant values.
#pragma once

#include <vector>

#include "millrace/runtime/kernel.h"
#include "millrace/tensor/variant.h"

namespace millrace {

// An unset element is an uninitialized tensor and reads as zeros.
class TensorList : public VariantValue {
 public:
  absl::string_view TypeName() const override { return "tensorflow::TensorList"; }
  std::string DebugString() const override;
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override;

  DType element_dtype = DType::kInvalid;
  PartialShape element_shape;  // of every element
  int64_t max_num_elements = -1;
  std::vector<Tensor> tensors;

  // INVALID_ARGUMENT if the tensor's type or shape does not match the list.
  Status CheckElement(const Tensor& t) const;
  // An empty list of the same type and element shape.
  RefPtr<TensorList> Like() const;
};

// The maximum number of elements, more than fit in memory.
inline constexpr int64_t kMaxListElements = int64_t{1} << 31;

// The list in input i, a scalar. INVALID_ARGUMENT if it is not a list.
StatusOr<const TensorList*> ListInput(const KernelContext& ctx, int i);
// The same, checked to have elements of type `element_dtype`.
StatusOr<const TensorList*> ListInput(const KernelContext& ctx, int i, DType element_dtype);

// The list of input 0 as output 0, unshared so that this node may modify it: copied only if it is shared.
StatusOr<TensorList*> TakeList(KernelContext& ctx, DType element_dtype);
StatusOr<TensorList*> TakeList(KernelContext& ctx);
// A new list as output i.
StatusOr<TensorList*> NewList(KernelContext& ctx, int i, DType dtype, PartialShape shape);

// A tensor as the shape of elements: a scalar -1 means unknown rank, -1 in a vector an unknown dimension.
StatusOr<PartialShape> ShapeFromTensor(const Tensor& t);

// Element i of the list. An unset element is zeros, whose shape must be fully determined by the list, `wanted` and the
// other elements.
StatusOr<Tensor> ListElement(KernelContext& ctx, const TensorList& list, int64_t i, const PartialShape& wanted);
// The common shape of all elements. INVALID_ARGUMENT if they differ or too little is known.
StatusOr<PartialShape> CommonShape(const TensorList& list, const PartialShape& wanted, bool with_elements);

StatusOr<Tensor> Zeros(KernelContext& ctx, DType dtype, const Shape& shape);
// Copies all elements of `from` to `to`, starting at element `offset`.
void CopyInto(const Tensor& from, Tensor* to, int64_t offset);

// For AddN and ZerosLike over variants.
StatusOr<Variant> AddVariants(KernelContext& ctx, const Variant& a, const Variant& b);
StatusOr<Variant> ZerosLikeVariant(KernelContext& ctx, const Variant& v);
StatusOr<Tensor> AddTensors(KernelContext& ctx, const Tensor& a, const Tensor& b);
StatusOr<Tensor> ZerosLikeTensor(KernelContext& ctx, const Tensor& t);

}  // namespace millrace
