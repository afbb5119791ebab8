// Sums of lists and zeros like a list, for gradients of lists.
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/list/optional.h"
#include "millrace/ops/list/tensor_list.h"
#include "millrace/ops/list/tensor_map.h"

namespace millrace {

StatusOr<Tensor> AddTensors(KernelContext& ctx, const Tensor& a, const Tensor& b) {
  if (!a.IsInitialized()) return b;
  if (!b.IsInitialized()) return a;
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) {
    return InvalidArgument("Cannot add ", DTypeName(a.dtype()), a.shape().ToString(), " and ", DTypeName(b.dtype()),
                           b.shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(Tensor sum, ctx.AllocateTemp(a.dtype(), a.shape()));
  if (a.dtype() == DType::kVariant) {
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      MR_ASSIGN_OR_RETURN(sum.data<Variant>()[i], AddVariants(ctx, a.data<Variant>()[i], b.data<Variant>()[i]));
    }
    return sum;
  }
  const bool known = DispatchType(NumberTypes{}, a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = a.data<T>();
    const T* y = b.data<T>();
    T* out = sum.data<T>();
    for (int64_t i = 0; i < a.num_elements(); ++i) out[i] = static_cast<T>(x[i] + y[i]);
  });
  if (!known) return InvalidArgument("Cannot add tensors of type ", DTypeName(a.dtype()));
  return sum;
}

StatusOr<Variant> AddVariants(KernelContext& ctx, const Variant& a, const Variant& b) {
  // The gradient of an unused list may be empty.
  if (a.empty()) return b;
  if (b.empty()) return a;
  const OptionalValue *p = a.Get<OptionalValue>(), *q = b.Get<OptionalValue>();
  if (p != nullptr && q != nullptr) return AddOptionals(ctx, *p, *q);
  const TensorMap *m = a.Get<TensorMap>(), *n = b.Get<TensorMap>();
  if (m != nullptr && n != nullptr) return AddMaps(ctx, *m, *n);
  const TensorList* x = a.Get<TensorList>();
  const TensorList* y = b.Get<TensorList>();
  if (x == nullptr || y == nullptr) {
    return InvalidArgument("Cannot add ", a.DebugString(), " and ", b.DebugString());
  }
  if (x->element_dtype != y->element_dtype) {
    return InvalidArgument("Trying to add two lists of tensors of different dtypes. One is ",
                           DTypeName(x->element_dtype), " and the other is ", DTypeName(y->element_dtype));
  }
  StatusOr<PartialShape> shape = x->element_shape.MergeWith(y->element_shape);
  if (!shape.ok()) {
    return InvalidArgument("Trying to add two lists of tensors with incompatible element shapes. One is ",
                           x->element_shape.ToString(), " and the other is ", y->element_shape.ToString());
  }
  if (x->tensors.size() != y->tensors.size()) {
    return InvalidArgument("Trying to add two lists of tensors with different lengths. One is ", x->tensors.size(),
                           " and the other is ", y->tensors.size());
  }
  RefPtr<TensorList> sum = x->Like();
  sum->element_shape = *shape;
  for (size_t i = 0; i < x->tensors.size(); ++i) {
    MR_ASSIGN_OR_RETURN(Tensor t, AddTensors(ctx, x->tensors[i], y->tensors[i]));
    sum->tensors.push_back(std::move(t));
  }
  return Variant(std::move(sum));
}

StatusOr<Tensor> ZerosLikeTensor(KernelContext& ctx, const Tensor& t) {
  if (!t.IsInitialized()) return t;
  if (t.dtype() != DType::kVariant) return Zeros(ctx, t.dtype(), t.shape());
  MR_ASSIGN_OR_RETURN(Tensor zeros, ctx.AllocateTemp(t.dtype(), t.shape()));
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    MR_ASSIGN_OR_RETURN(zeros.data<Variant>()[i], ZerosLikeVariant(ctx, t.data<Variant>()[i]));
  }
  return zeros;
}

StatusOr<Variant> ZerosLikeVariant(KernelContext& ctx, const Variant& v) {
  if (v.empty()) return v;
  if (const OptionalValue* optional = v.Get<OptionalValue>()) return ZerosLikeOptional(ctx, *optional);
  if (const TensorMap* map = v.Get<TensorMap>()) return ZerosLikeMap(ctx, *map);
  const TensorList* list = v.Get<TensorList>();
  if (list == nullptr) return InvalidArgument("there are no zeros like ", v.DebugString());
  RefPtr<TensorList> zeros = list->Like();
  for (const Tensor& t : list->tensors) {
    MR_ASSIGN_OR_RETURN(Tensor zero, ZerosLikeTensor(ctx, t));
    zeros->tensors.push_back(std::move(zero));
  }
  return Variant(std::move(zeros));
}

}  // namespace millrace
