#include <algorithm>
#include <cstring>

#include "millrace/ops/data_flow/gradient_sum.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Keeps rows sorted by index if they arrive sorted. Two lists of rows are merged like sorted lists, sorted or not, as
// in TensorFlow.
class SparseGradientSum : public GradientSum {
 public:
  SparseGradientSum(DType dtype, PartialShape shape) : dtype_(dtype), shape_(std::move(shape)) {}

  Status Add(const GradientPart& part) override {
    MR_RETURN_IF_ERROR(Check(part));
    const absl::Span<const int64_t> indices = part.indices->flat<int64_t>();
    if (count_ == 0) {
      indices_.assign(indices.begin(), indices.end());
      counts_.assign(indices.size(), 1);
      values_ = *part.values;
    } else {
      MR_RETURN_IF_ERROR(Merge(indices, *part.values));
    }
    ++count_;
    return absl::OkStatus();
  }

  StatusOr<std::vector<Tensor>> Take(bool mean) override {
    if (mean) MR_RETURN_IF_ERROR(DivideRows());
    Tensor shape(DType::kInt64, Shape({values_.rank()}));
    for (int i = 0; i < values_.rank(); ++i) {
      const int64_t first = shape_.rank() > 0 ? shape_.dim(0) : PartialShape::kUnknown;
      shape.data<int64_t>()[i] = i == 0 ? first : values_.dim(i);
    }
    std::vector<Tensor> result;
    result.push_back(Tensor::FromVector(indices_));
    result.push_back(std::exchange(values_, Tensor()));
    result.push_back(std::move(shape));
    indices_.clear();
    counts_.clear();
    count_ = 0;
    return result;
  }

 private:
  int rank() const { return std::max(shape_.rank(), 0); }
  int64_t RowSize() const { return values_.shape().Product(1, values_.rank()); }

  Status Check(const GradientPart& part) const {
    const Tensor& values = *part.values;
    if (values.dtype() != dtype_) {
      return InvalidArgument("the accumulator takes gradients of ", dtype_, ", got ", values.dtype());
    }
    if (part.indices->rank() != 1) {
      return InvalidArgument("Input indices should be vector but received shape: ", part.indices->shape().ToString());
    }
    if (values.rank() == 0) return InvalidArgument("Values cannot be 0-dimensional.");
    if (values.dim(0) != part.indices->dim(0)) {
      return InvalidArgument("Expected ", part.indices->dim(0), " non-empty input values, got ", values.dim(0));
    }
    if (part.shape != nullptr) MR_RETURN_IF_ERROR(CheckWholeShape(part.shape->flat<int64_t>()));
    if (rank() > 0 && shape_.dim(0) >= 0) {
      for (int64_t i = 0; i < part.indices->num_elements(); ++i) {
        const int64_t index = part.indices->data<int64_t>()[i];
        if (index >= shape_.dim(0)) {
          return InvalidArgument("Shape mismatch: index of slice ", i, " exceeded limits of shape; index is ", index,
                                 " exceeded ", shape_.dim(0));
        }
      }
    }
    return CheckRowShape(values.shape());
  }

  Status CheckWholeShape(absl::Span<const int64_t> dims) const {
    if (rank() > static_cast<int>(dims.size())) {
      return InvalidArgument("Shape mismatch: expected shape rank at least ", rank(), ", got ", dims.size());
    }
    for (int i = 0; i < rank(); ++i) {
      if (shape_.dim(i) >= 0 && shape_.dim(i) != dims[i]) {
        return InvalidArgument("Shape mismatch: expected shape dim ", i, " to be ", shape_.dim(i), ", got ", dims[i]);
      }
    }
    return absl::OkStatus();
  }

  // Checks against the existing rows, or else against the declared shape.
  Status CheckRowShape(const Shape& shape) const {
    if (count_ > 0 && shape.rank() != values_.rank()) {
      return InvalidArgument("Shape mismatch: expected values rank ", values_.rank(), ", got ", shape.rank());
    }
    if (shape.rank() < rank()) {
      return InvalidArgument("Shape mismatch: expected values rank at least ", rank(), ", got ", shape.rank());
    }
    const int dims = count_ > 0 ? values_.rank() : rank();
    for (int i = 1; i < dims; ++i) {
      const int64_t expected = count_ > 0 ? values_.dim(i) : shape_.dim(i);
      if (expected >= 0 && expected != shape.dim(i)) {
        return InvalidArgument("Shape mismatch: expected values dim ", i, " to be ", expected, ", got ", shape.dim(i));
      }
    }
    return absl::OkStatus();
  }

  Status Merge(absl::Span<const int64_t> indices, const Tensor& values) {
    struct Source {
      int64_t mine;  // row of the sum, or -1
      int64_t theirs;
    };
    const int64_t n = static_cast<int64_t>(indices_.size()), m = static_cast<int64_t>(indices.size());
    std::vector<Source> sources;
    sources.reserve(static_cast<size_t>(n + m));
    for (int64_t i = 0, j = 0; i < n || j < m;) {
      const bool mine = j == m || (i < n && indices_[i] <= indices[j]);
      const bool theirs = i == n || (j < m && indices[j] <= indices_[i]);
      sources.push_back({mine ? i++ : -1, theirs ? j++ : -1});
    }
    Shape shape = values.shape();
    shape.set_dim(0, static_cast<int64_t>(sources.size()));
    MR_ASSIGN_OR_RETURN(Tensor merged, Tensor::Make(dtype_, shape));
    std::vector<int64_t> merged_indices(sources.size());
    std::vector<int64_t> merged_counts(sources.size());
    const int64_t row = RowSize();
    DispatchType(FloatTypes{}, dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = merged.data<T>();
      for (size_t k = 0; k < sources.size(); ++k, to += row) {
        const auto [i, j] = sources[k];
        const T* const a = i >= 0 ? values_.data<T>() + i * row : nullptr;
        const T* const b = j >= 0 ? values.data<T>() + j * row : nullptr;
        if (a != nullptr && b != nullptr) {
          for (int64_t e = 0; e < row; ++e) to[e] = a[e] + b[e];
        } else {
          std::copy_n(a != nullptr ? a : b, row, to);
        }
        merged_indices[k] = i >= 0 ? indices_[i] : indices[j];
        merged_counts[k] = (i >= 0 ? counts_[i] : 0) + (j >= 0 ? 1 : 0);
      }
    });
    values_ = std::move(merged);
    indices_ = std::move(merged_indices);
    counts_ = std::move(merged_counts);
    return absl::OkStatus();
  }

  Status DivideRows() {
    if (std::all_of(counts_.begin(), counts_.end(), [](int64_t c) { return c == 1; })) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor means, Tensor::Make(dtype_, values_.shape()));
    const int64_t row = RowSize();
    DispatchType(FloatTypes{}, dtype_, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (size_t k = 0; k < counts_.size(); ++k) {
        const T count = static_cast<T>(static_cast<float>(counts_[k]));
        const T* const from = values_.data<T>() + static_cast<int64_t>(k) * row;
        T* const to = means.data<T>() + static_cast<int64_t>(k) * row;
        for (int64_t e = 0; e < row; ++e) to[e] = from[e] / count;
      }
    });
    values_ = std::move(means);
    return absl::OkStatus();
  }

  const DType dtype_;
  const PartialShape shape_;
  std::vector<int64_t> indices_;
  std::vector<int64_t> counts_;  // the number of gradients in each row
  Tensor values_;
  int64_t count_ = 0;
};

}  // namespace

std::unique_ptr<GradientSum> GradientSum::Sparse(DType dtype, const PartialShape& shape) {
  return std::make_unique<SparseGradientSum>(dtype, shape);
}

}  // namespace millrace
