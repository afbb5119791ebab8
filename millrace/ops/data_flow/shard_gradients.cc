#include "millrace/ops/data_flow/shard_gradients.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Sorts rows by index and adds up those of equal index, in the order in which they stand.
Status SortRows(Tensor* indices, Tensor* values) {
  const absl::Span<const int64_t> from = indices->flat<int64_t>();
  if (std::is_sorted(from.begin(), from.end(), std::less_equal<>())) return absl::OkStatus();
  std::vector<int64_t> order(from.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return from[a] < from[b]; });
  std::vector<int64_t> unique;
  for (const int64_t i : order) {
    if (unique.empty() || unique.back() != from[i]) unique.push_back(from[i]);
  }
  Shape shape = values->shape();
  shape.set_dim(0, static_cast<int64_t>(unique.size()));
  MR_ASSIGN_OR_RETURN(Tensor sums, Tensor::Make(values->dtype(), shape));
  const int64_t row = shape.Product(1, shape.rank());
  DispatchType(FloatTypes{}, values->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = sums.data<T>() - row;
    int64_t last = -1;
    for (const int64_t i : order) {
      const T* const add = values->data<T>() + i * row;
      if (last < 0 || from[i] != from[last]) {
        std::copy_n(add, row, to += row);
      } else {
        for (int64_t e = 0; e < row; ++e) to[e] = to[e] + add[e];
      }
      last = i;
    }
  });
  *indices = Tensor::FromVector(unique);
  *values = std::move(sums);
  return absl::OkStatus();
}

// Divides every element by `n`, into new memory.
StatusOr<Tensor> Divided(const Tensor& sum, int n) {
  MR_ASSIGN_OR_RETURN(Tensor mean, Tensor::Make(sum.dtype(), sum.shape()));
  DispatchType(FloatTypes{}, sum.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T count = static_cast<T>(static_cast<float>(n));
    const T* const from = sum.data<T>();
    T* const to = mean.data<T>();
    for (int64_t i = 0; i < sum.num_elements(); ++i) to[i] = from[i] / count;
  });
  return mean;
}

}  // namespace

ShardGradients::ShardGradients(DType dtype, PartialShape shape, bool sparse, int shards)
    : dtype_(dtype), shape_(std::move(shape)), sparse_(sparse), shards_(shards) {}

std::unique_ptr<GradientSum> ShardGradients::NewSum() const {
  return sparse_ ? GradientSum::Sparse(dtype_, shape_) : GradientSum::Dense(dtype_, shape_);
}

StatusOr<std::vector<Tensor>> ShardGradients::Checked(const GradientPart& part) const {
  if (!IsNode(part.shards, shards_)) {
    return InvalidArgument("shards ", part.shards.first, " to ", part.shards.last - 1, " of ", shards_,
                           " are no node of the tree in which shards are combined");
  }
  MR_RETURN_IF_ERROR(NewSum()->Add(part));
  if (!sparse_) return std::vector<Tensor>{*part.values};
  std::vector<Tensor> rows = {*part.indices, *part.values};
  MR_RETURN_IF_ERROR(SortRows(&rows[0], &rows[1]));
  return rows;
}

StatusOr<bool> ShardGradients::Add(int64_t step, const GradientPart& part) {
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> checked, Checked(part));
  if (again_ && step == taken_step_) return false;
  Parts& parts = steps_[step];
  // Two nodes of a tree are disjoint, or one contains the other.
  const ShardRange range = part.shards;
  for (auto it = parts.begin(); it != parts.end();) {
    const ShardRange has = it->first;
    if (has.first <= range.first && range.last <= has.last) return false;
    it = range.first <= has.first && has.last <= range.last ? parts.erase(it) : std::next(it);
  }
  parts.emplace(range, std::move(checked));
  if (step > taken_step_) taken_.clear();
  return true;
}

int64_t ShardGradients::count(int64_t step) const {
  if (again_ && step == taken_step_) return shards_;
  int64_t count = 0;
  if (const auto found = steps_.find(step); found != steps_.end()) {
    for (const auto& [range, value] : found->second) count += range.size();
  }
  return count;
}

std::string ShardGradients::Missing(int64_t step) const {
  std::vector<bool> there(static_cast<size_t>(shards_), false);
  if (const auto found = steps_.find(step); found != steps_.end()) {
    for (const auto& [range, value] : found->second)
      std::fill(there.begin() + range.first, there.begin() + range.last, true);
  }
  std::vector<int> missing;
  for (int i = 0; i < shards_; ++i) {
    if (!there[i]) missing.push_back(i);
  }
  return absl::StrJoin(missing, ", ");
}

StatusOr<std::vector<Tensor>> ShardGradients::Sum(const Parts& parts, ShardRange node) const {
  if (const auto found = parts.find(node); found != parts.end()) return found->second;
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> left, Sum(parts, node.left()));
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> right, Sum(parts, node.right()));
  const std::unique_ptr<GradientSum> sum = NewSum();
  for (const std::vector<Tensor>* half : {&left, &right}) {
    MR_RETURN_IF_ERROR(sum->Add({.values = &half->back(), .indices = sparse_ ? &half->front() : nullptr}));
  }
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> result, sum->Take(/*mean=*/false));
  if (sparse_) result.pop_back();
  return result;
}

StatusOr<std::vector<Tensor>> ShardGradients::Take(int64_t step, bool mean) {
  if (again_ && step == taken_step_) {
    again_ = false;
    return taken_;
  }
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> result, Sum(steps_[step], {0, shards_}));
  if (mean && shards_ > 1) {
    MR_ASSIGN_OR_RETURN(result.back(), Divided(result.back(), shards_));
  }
  if (sparse_) {
    const Tensor& values = result[1];
    Tensor shape(DType::kInt64, Shape({values.rank()}));
    for (int i = 0; i < values.rank(); ++i) {
      const int64_t first = shape_.rank() > 0 ? shape_.dim(0) : PartialShape::kUnknown;
      shape.data<int64_t>()[i] = i == 0 ? first : values.dim(i);
    }
    result.push_back(std::move(shape));
  }
  steps_.erase(step);
  taken_step_ = step;
  taken_ = result;
  return result;
}

void ShardGradients::MoveTo(int64_t step, bool back) {
  again_ = back && step == taken_step_ && !taken_.empty();
  if (again_) return;
  if (back) {
    steps_.clear();
  } else {
    steps_.erase(steps_.begin(), steps_.lower_bound(step));
  }
}

}  // namespace millrace
