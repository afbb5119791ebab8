// Lists of tensors, as variants hold them.
#pragma once

#include <vector>

#include "millrace/runtime/kernel.h"
#include "millrace/tensor/variant.h"

namespace millrace {

// An element that was never set is an uninitialised tensor and counts as zeros.
class TensorList : public VariantValue {
 public:
  absl::string_view TypeName() const override { return "tensorflow::TensorList"; }
  std::string DebugString() const override;
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override;

  DType element_dtype = DType::kInvalid;
  PartialShape element_shape;  // of every element
  int64_t max_num_elements = -1;
  std::vector<Tensor> tensors;

  // INVALID_ARGUMENT when a tensor of that type and shape may not be an element.
  Status CheckElement(const Tensor& t) const;
  // A list like this one without elements.
  RefPtr<TensorList> Like() const;
};

// No list that fits in memory has more elements.
inline constexpr int64_t kMaxListElements = int64_t{1} << 31;

// The list in input i, a scalar. INVALID_ARGUMENT when there is none.
StatusOr<const TensorList*> ListInput(const KernelContext& ctx, int i);
// The same, checked to hold elements of the node's attr element_dtype.
StatusOr<const TensorList*> ListInput(const KernelContext& ctx, int i, DType element_dtype);

// The list of input 0 as output 0, for this node alone to change: the same one when nobody else has it, otherwise a copy.
StatusOr<TensorList*> TakeList(KernelContext& ctx, DType element_dtype);
StatusOr<TensorList*> TakeList(KernelContext& ctx);
// A new list as output i.
StatusOr<TensorList*> NewList(KernelContext& ctx, int i, DType dtype, PartialShape shape);

// A tensor read as the shape of elements: a scalar -1 says nothing, -1 in a vector leaves a dimension open.
StatusOr<PartialShape> ShapeFromTensor(const Tensor& t);

// Element i of the list, zeros when it was never set: their shape is then what the list, `wanted` and the other
// elements tell, which must be all of it.
StatusOr<Tensor> ListElement(KernelContext& ctx, const TensorList& list, int64_t i, const PartialShape& wanted);
// The shape that all elements have. INVALID_ARGUMENT when they differ or too little is known.
StatusOr<PartialShape> CommonShape(const TensorList& list, const PartialShape& wanted, bool with_elements);

StatusOr<Tensor> Zeros(KernelContext& ctx, DType dtype, const Shape& shape);
// Copies all elements of `from` into `to`, from element `offset` on.
void CopyInto(const Tensor& from, Tensor* to, int64_t offset);

// For AddN and ZerosLike over variants.
StatusOr<Variant> AddVariants(KernelContext& ctx, const Variant& a, const Variant& b);
StatusOr<Variant> ZerosLikeVariant(KernelContext& ctx, const Variant& v);
StatusOr<Tensor> AddTensors(KernelContext& ctx, const Tensor& a, const Tensor& b);
StatusOr<Tensor> ZerosLikeTensor(KernelContext& ctx, const Tensor& t);

}  // namespace millrace
