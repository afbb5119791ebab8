#include "millrace/ops/sparse/feature_columns.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "millrace/ops/string/hashes.h"

namespace millrace::sparse {
namespace {

// More crosses in one tensor indicate wrong inputs.
constexpr int64_t kMaxCrosses = int64_t{1} << 31;

uint64_t ShiftMix(uint64_t x) { return x ^ (x >> 47); }

// One fingerprint of two; models depend on its values.
uint64_t CombineFingerprints(uint64_t a, uint64_t b) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  uint64_t mixed = a ^ kMul;
  mixed ^= ShiftMix(b * kMul) * kMul;
  mixed *= kMul;
  return ShiftMix(ShiftMix(mixed) * kMul);
}

}  // namespace

StatusOr<FeatureColumn> FeatureColumn::FromSparse(const Tensor& indices, const Tensor& values, const Tensor& shape) {
  if (indices.rank() != 2) {
    return InvalidArgument("Input indices should be a matrix but received shape ", indices.shape().ToString());
  }
  if (values.rank() != 1) {
    return InvalidArgument("Input values should be a vector but received shape ", values.shape().ToString());
  }
  if (shape.rank() != 1) {
    return InvalidArgument("Input shapes should be a vector but received shape ", shape.shape().ToString());
  }
  if (indices.dim(1) != 2) return InvalidArgument("Expected D2 of index to be 2 got ", indices.dim(1));
  if (shape.dim(0) != 2)
    return InvalidArgument("shape should imply a 2D tensor, but got ", shape.dim(0), " dimensions");
  MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(indices, values, shape));
  FeatureColumn column;
  column.is_sparse_ = true;
  column.values_ = &values;
  column.starts_.assign(static_cast<size_t>(input.shape.dim(0)) + 1, 0);
  int64_t before = 0;
  for (int64_t i = 0; i < input.count(); ++i) {
    const int64_t row = input.Index(i, 0);
    if (row < 0 || row >= input.shape.dim(0)) {
      return InvalidArgument("indices[", i, ",0] is out of bounds: ", row, " is not in [0, ", input.shape.dim(0), ")");
    }
    if (row < before) return InvalidArgument("indices[", i, "] is out of order: row ", row, " after row ", before);
    before = row;
    ++column.starts_[row + 1];
  }
  for (size_t row = 1; row < column.starts_.size(); ++row) column.starts_[row] += column.starts_[row - 1];
  return column;
}

StatusOr<FeatureColumn> FeatureColumn::FromDense(const Tensor& matrix) {
  if (matrix.rank() != 2) {
    return InvalidArgument("Dense inputs should be a matrix but received shape ", matrix.shape().ToString());
  }
  FeatureColumn column;
  column.values_ = &matrix;
  for (int64_t row = 0; row <= matrix.dim(0); ++row) column.starts_.push_back(row * matrix.dim(1));
  return column;
}

StatusOr<FeatureColumn> FeatureColumn::FromRagged(const Tensor& values, const Tensor& splits) {
  if (values.rank() != 1 || splits.rank() != 1) {
    return InvalidArgument("tf.ragged.cross only supports inputs with rank=2.");
  }
  if (splits.dim(0) < 1 || IntAt(splits, 0) != 0 || IntAt(splits, splits.dim(0) - 1) != values.dim(0)) {
    return InvalidArgument("Invalid ragged splits: they start with 0 and end with the number of values");
  }
  FeatureColumn column;
  column.values_ = &values;
  for (int64_t i = 0; i < splits.dim(0); ++i) {
    column.starts_.push_back(IntAt(splits, i));
    if (i > 0 && column.starts_[i] < column.starts_[i - 1]) {
      return InvalidArgument("Invalid RaggedTensor: row splits must not fall");
    }
  }
  return column;
}

std::string FeatureColumn::Text(int64_t row, int64_t i) const {
  const int64_t at = starts_[row] + i;
  return values_->dtype() == DType::kString ? values_->data<std::string>()[at] : absl::StrCat(IntAt(*values_, at));
}

uint64_t FeatureColumn::Number(int64_t row, int64_t i, const CrossOptions& options) const {
  const int64_t at = starts_[row] + i;
  const auto fingerprint = [&](absl::string_view text) {
    if (options.salt == nullptr) return FarmFingerprint64(text);
    return SipHash(static_cast<uint64_t>(options.salt[0]), static_cast<uint64_t>(options.salt[1]), text);
  };
  if (values_->dtype() == DType::kString) return fingerprint(values_->data<std::string>()[at]);
  const int64_t number = IntAt(*values_, at);
  if (!is_sparse_ || !options.hash_sparse_ints) return static_cast<uint64_t>(number);
  char bytes[4];
  for (int b = 0; b < 4; ++b) bytes[b] = static_cast<char>((number >> (8 * b)) & 0xFF);
  return fingerprint(absl::string_view(bytes, sizeof(bytes)));
}

StatusOr<FeatureCrosses> FeatureCrosses::Make(std::vector<FeatureColumn> columns) {
  FeatureCrosses crosses;
  const int64_t rows = columns.empty() ? 0 : columns[0].num_rows();
  for (size_t c = 1; c < columns.size(); ++c) {
    if (columns[c].num_rows() != rows) {
      return InvalidArgument("Expected batch size ", rows, " got ", columns[c].num_rows(), " at input ", c);
    }
  }
  crosses.starts_.push_back(0);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t count = 1;
    for (const FeatureColumn& column : columns) {
      if (column.Count(row) == 0) {
        count = 0;
        break;
      }
      if (count > kMaxCrosses / column.Count(row)) return InvalidArgument("row ", row, " has too many crosses");
      count *= column.Count(row);
    }
    crosses.starts_.push_back(crosses.starts_.back() + count);
    if (crosses.total() > kMaxCrosses) return InvalidArgument("there are too many crosses");
  }
  crosses.columns_ = std::move(columns);
  return crosses;
}

void FeatureCrosses::Write(const CrossOptions& options, Tensor* out) const {
  std::vector<int64_t> chosen(columns_.size());
  int64_t at = 0;
  for (int64_t row = 0; row < num_rows(); ++row) {
    std::fill(chosen.begin(), chosen.end(), 0);
    for (int64_t i = 0; i < Count(row); ++i, ++at) {
      if (options.hashed) {
        uint64_t hash = static_cast<uint64_t>(options.hash_key);
        for (size_t c = 0; c < columns_.size(); ++c) {
          const uint64_t number = columns_[c].Number(row, chosen[c], options);
          hash = c == 0 && !options.with_key ? number : CombineFingerprints(hash, number);
        }
        const uint64_t buckets =
            options.num_buckets > 0 ? static_cast<uint64_t>(options.num_buckets) : std::numeric_limits<int64_t>::max();
        out->data<int64_t>()[at] = static_cast<int64_t>(hash % buckets);
      } else {
        std::string text;
        for (size_t c = 0; c < columns_.size(); ++c) {
          absl::StrAppend(&text, c == 0 ? "" : options.separator, columns_[c].Text(row, chosen[c]));
        }
        out->data<std::string>()[at] = std::move(text);
      }
      for (size_t c = columns_.size(); c-- > 0;) {
        if (++chosen[c] < columns_[c].Count(row)) break;
        chosen[c] = 0;
      }
    }
  }
}

}  // namespace millrace::sparse
