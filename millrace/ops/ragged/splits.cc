#include "millrace/ops/ragged/splits.h"

#include <algorithm>

namespace millrace::ragged {

Splits IntsOf(const Tensor& t) {
  Splits values(static_cast<size_t>(t.num_elements()));
  DispatchType(IndexTypes{}, t.dtype(), [&](auto tag) {
    const auto* from = t.data<typename decltype(tag)::type>();
    std::copy(from, from + t.num_elements(), values.begin());
  });
  return values;
}

StatusOr<Splits> SplitsOf(const Tensor& t, int64_t values) {
  if (t.rank() != 1 || t.num_elements() == 0) {
    return InvalidArgument(
        "Invalid ragged tensor: Splits must be non-empty: row splits must be a vector with at least one element, but "
        "have shape ",
        t.shape().ToString());
  }
  Splits splits = IntsOf(t);
  if (splits.front() != 0) return InvalidArgument("Invalid ragged splits: first element of splits must be 0");
  if (!std::is_sorted(splits.begin(), splits.end())) {
    return InvalidArgument("Invalid ragged splits: ragged splits must be monotonically increasing");
  }
  if (values >= 0 && splits.back() != values) {
    return InvalidArgument("Invalid ragged splits: last element of ragged splits must be the number of ragged values(",
                           values, "), got ", splits.back());
  }
  return splits;
}

StatusOr<std::vector<Splits>> NestedSplits(const KernelContext& ctx, int first, int count, const Tensor& values) {
  if (values.rank() < 1) return InvalidArgument("ragged values must be at least a vector, but are a scalar");
  std::vector<Splits> nested;
  for (int i = 0; i < count; ++i) {
    const int64_t inner = i + 1 < count ? ctx.input(first + i + 1).num_elements() - 1 : values.dim(0);
    MR_ASSIGN_OR_RETURN(nested.emplace_back(), SplitsOf(ctx.input(first + i), inner));
  }
  return nested;
}

Status GiveInts(KernelContext& ctx, int i, const Splits& values) {
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(i, Shape({static_cast<int64_t>(values.size())})));
  DispatchType(IndexTypes{}, out->dtype(), [&](auto tag) {
    using I = typename decltype(tag)::type;
    std::transform(values.begin(), values.end(), out->data<I>(), [](int64_t v) { return static_cast<I>(v); });
  });
  return absl::OkStatus();
}

void CopyRows(const Tensor& from, int64_t begin, int64_t end, Tensor* to, int64_t at) {
  const int64_t row = from.dim(0) == 0 ? 0 : from.num_elements() / from.dim(0);
  DispatchMove(from.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::copy(from.raw<T>() + begin * row, from.raw<T>() + end * row, to->raw<T>() + at * row);
  });
}

StatusOr<Shape> WithRows(const Tensor& t, int64_t rows) {
  Shape::Dims dims(t.shape().dims().begin(), t.shape().dims().end());
  dims[0] = rows;
  return Shape::Make(dims);
}

}  // namespace millrace::ragged
