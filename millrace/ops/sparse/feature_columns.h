// Crosses of features.
#pragma once

#include <string>
#include <vector>

#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {

// How crosses are made into values.
struct CrossOptions {
  bool hashed = false;
  std::string separator = "_X_";
  int64_t num_buckets = 0;  // 0: as many as there are numbers
  bool with_key = false;    // the hash begins with `hash_key`
  int64_t hash_key = 0;
  const int64_t* salt = nullptr;  // two numbers, for keyed fingerprints
  // Integers of sparse columns are hashed too: their four lower bytes. Models depend on it.
  bool hash_sparse_ints = false;
};

// A column of features that are crossed: for each row of a batch, a list of strings or integers.
class FeatureColumn {
 public:
  // The rows of a sparse matrix, whose entries are in order. INVALID_ARGUMENT if it is none.
  static StatusOr<FeatureColumn> FromSparse(const Tensor& indices, const Tensor& values, const Tensor& shape);
  static StatusOr<FeatureColumn> FromDense(const Tensor& matrix);
  static StatusOr<FeatureColumn> FromRagged(const Tensor& values, const Tensor& splits);

  int64_t num_rows() const { return static_cast<int64_t>(starts_.size()) - 1; }
  int64_t Count(int64_t row) const { return starts_[row + 1] - starts_[row]; }
  std::string Text(int64_t row, int64_t i) const;
  // An integer itself, or the fingerprint of a string, as the options say.
  uint64_t Number(int64_t row, int64_t i, const CrossOptions& options) const;

 private:
  const Tensor* values_ = nullptr;
  bool is_sparse_ = false;
  std::vector<int64_t> starts_;  // by row, and the end
};

// All combinations of one feature of each column, row by row, the last column varying fastest. INVALID_ARGUMENT if the
// columns have different numbers of rows or there are too many crosses.
class FeatureCrosses {
 public:
  static StatusOr<FeatureCrosses> Make(std::vector<FeatureColumn> columns);

  int64_t num_rows() const { return static_cast<int64_t>(starts_.size()) - 1; }
  int64_t Start(int64_t row) const { return starts_[row]; }
  int64_t Count(int64_t row) const { return starts_[row + 1] - starts_[row]; }
  int64_t total() const { return starts_.back(); }
  // Sets `out`, a vector of `total` strings or, if hashed, int64.
  void Write(const CrossOptions& options, Tensor* out) const;

 private:
  std::vector<FeatureColumn> columns_;
  std::vector<int64_t> starts_;
};

}  // namespace millrace::sparse
