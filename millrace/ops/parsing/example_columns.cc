#include "millrace/ops/parsing/example_columns.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// The name of a feature's list in tf.train.Feature, for messages.
std::string KindName(DType t) { return t == DType::kString ? "bytes" : DTypeName(t); }

// Parses one batch in two passes: first finds, checks and counts the features of every example; then, with all sizes
// known, decodes the values directly into the outputs.
class ExampleParser {
 public:
  ExampleParser(KernelContext& ctx, const SerializedExamples& examples, const ExampleColumns& columns)
      : ctx_(ctx), examples_(examples), columns_(columns), n_(static_cast<int64_t>(examples.bytes.size())) {
    for (const SparseColumn& c : columns.sparse) AddColumn(c.key, c.dtype);
    for (const DenseColumn& c : columns.dense) AddColumn(c.key, c.dtype);
    for (const RaggedColumn& c : columns.ragged) AddColumn(c.key, c.dtype);
    const size_t cells = types_.size() * static_cast<size_t>(n_);
    views_.resize(cells);
    counts_.resize(cells);
  }

  StatusOr<ParsedColumns> Run() {
    if (n_ > 1) LearnOrder();
    MR_RETURN_IF_ERROR(ForEachExample(ctx_, examples_.bytes, [this](int64_t i) { return Find(i); }));
    for (const SparseColumn& c : columns_.sparse) MR_RETURN_IF_ERROR(AllocateSparse(c));
    for (const DenseColumn& c : columns_.dense) MR_RETURN_IF_ERROR(AllocateDense(c));
    for (const RaggedColumn& c : columns_.ragged) MR_RETURN_IF_ERROR(AllocateRagged(c));
    MR_RETURN_IF_ERROR(ForEachExample(ctx_, examples_.bytes, [this](int64_t i) {
      Decode(i);
      return absl::OkStatus();
    }));
    return std::move(out_);
  }

 private:
  int num_columns() const { return static_cast<int>(types_.size()); }
  int num_sparse() const { return static_cast<int>(columns_.sparse.size()); }
  int num_dense() const { return static_cast<int>(columns_.dense.size()); }
  FeatureView& view(int64_t example, int column) { return views_[example * num_columns() + column]; }
  int64_t& count(int64_t example, int column) { return counts_[example * num_columns() + column]; }

  void AddColumn(absl::string_view key, DType dtype) {
    keys_.Add(key, num_columns());
    names_.push_back(key);
    types_.push_back(dtype);
  }

  // Remembers the order of the first example's keys: a writer mostly writes all examples in one order, so that a key's
  // columns are found without looking it up.
  void LearnOrder() {
    // A malformed example is reported by Find.
    (void)ForEachEntry(examples_.bytes[0], kExampleFeatures, [&](absl::string_view key, absl::string_view) {
      order_.emplace_back(key, keys_.Find(key));
      return true;
    });
  }

  Status Find(int64_t i) {
    const std::string& bytes = examples_.bytes[i];
    Status status;
    size_t next = 0;
    const bool ok = ForEachEntry(bytes, kExampleFeatures, [&](absl::string_view key, absl::string_view value) {
      const bool expected = next < order_.size() && order_[next].first == key;
      const absl::Span<const int> columns = expected ? order_[next].second : keys_.Find(key);
      ++next;
      for (const int c : columns) {
        if (!ReadFeature(value, &view(i, c))) {
          status = InvalidArgument(examples_.Name(i), "Key: ", key, ".  Can't parse serialized Example.");
          return false;
        }
      }
      return true;
    });
    if (!status.ok()) return status;
    if (!ok) {
      return InvalidArgument(examples_.Name(i), "Could not parse example input of ", bytes.size(), " bytes, value: '",
                             absl::string_view(bytes).substr(0, 256), "'");
    }
    for (int c = 0; c < num_columns(); ++c) MR_RETURN_IF_ERROR(CheckCell(i, c));
    return absl::OkStatus();
  }

  Status CheckCell(int64_t i, int c) {
    const FeatureView& feature = view(i, c);
    const DenseColumn* dense =
        c >= num_sparse() && c < num_sparse() + num_dense() ? &columns_.dense[c - num_sparse()] : nullptr;
    if (feature.dtype == DType::kInvalid) {
      if (dense != nullptr && dense->default_value.num_elements() == 0 && !dense->variable()) {
        return InvalidArgument(examples_.Name(i), "Feature: ", names_[c], " (data type: ", types_[c],
                               ") is required but could not be found.");
      }
      return absl::OkStatus();
    }
    if (feature.dtype != types_[c]) {
      return InvalidArgument(examples_.Name(i), "Key: ", names_[c], ", Index: ", i,
                             ".  Data types don't match. Expected type: ", types_[c], ", Actual type: ", feature.dtype);
    }
    const int64_t values = CountValues(feature);
    if (values < 0) {
      return InvalidArgument(examples_.Name(i), "Key: ", names_[c], ", Index: ", i,
                             ".  Can't parse serialized Example: the ", types_[c], " values are malformed.");
    }
    if (dense != nullptr && !dense->variable() && values != dense->stride()) {
      return InvalidArgument(examples_.Name(i), "Key: ", names_[c], ", Index: ", i, ".  Number of ",
                             KindName(types_[c]), " values != expected.  Values size: ", values,
                             " but output shape: ", dense->shape.ToString(), ".  Can't parse serialized Example.");
    }
    if (dense != nullptr && dense->variable() && (dense->stride() == 0 ? values != 0 : values % dense->stride() != 0)) {
      return InvalidArgument(examples_.Name(i), "Key: ", names_[c], ", Index: ", i, ".  Number of ",
                             KindName(types_[c]), " values is not a multiple of stride length. Saw ", values,
                             " values but output shape is: ", dense->shape.ToString());
    }
    count(i, c) = values;
    return absl::OkStatus();
  }

  // Computes the offset of each example's values, and returns their total number.
  int64_t FillStarts(int c) {
    std::vector<int64_t>& starts = starts_.emplace_back(static_cast<size_t>(n_));
    int64_t total = 0;
    for (int64_t i = 0; i < n_; ++i) {
      starts[i] = total;
      total += count(i, c);
    }
    return total;
  }
  int64_t MaxCount(int c) {
    int64_t most = 0;
    for (int64_t i = 0; i < n_; ++i) most = std::max(most, count(i, c));
    return most;
  }

  Status AllocateSparse(const SparseColumn& column) {
    const auto c = static_cast<int>(starts_.size());
    const int64_t total = FillStarts(c);
    MR_ASSIGN_OR_RETURN(Tensor indices, ctx_.AllocateTemp(DType::kInt64, Shape({total, examples_.batched ? 2 : 1})));
    MR_ASSIGN_OR_RETURN(Tensor values, ctx_.AllocateTemp(column.dtype, Shape({total})));
    const Tensor shape = examples_.batched ? Tensor::Of<int64_t>({n_, MaxCount(c)}) : Tensor::Of<int64_t>({total});
    out_.sparse_indices.push_back(std::move(indices));
    out_.sparse_values.push_back(std::move(values));
    out_.sparse_shapes.push_back(shape);
    return absl::OkStatus();
  }

  Status AllocateDense(const DenseColumn& column) {
    const auto c = static_cast<int>(starts_.size());
    FillStarts(c);
    Shape::Dims dims(column.shape.dims().begin(), column.shape.dims().end());
    if (column.variable()) dims[0] = column.stride() == 0 ? 0 : MaxCount(c) / column.stride();
    if (examples_.batched) dims.insert(dims.begin(), n_);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor values, ctx_.AllocateTemp(column.dtype, shape));
    row_sizes_.push_back(n_ == 0 ? 0 : values.num_elements() / n_);
    out_.dense_values.push_back(std::move(values));
    return absl::OkStatus();
  }

  Status AllocateRagged(const RaggedColumn& column) {
    const auto c = static_cast<int>(starts_.size());
    const int64_t total = FillStarts(c);
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < n_; ++i) lengths.push_back(count(i, c));
    MR_ASSIGN_OR_RETURN(Tensor values, ctx_.AllocateTemp(column.dtype, Shape({total})));
    Tensor splits(column.splits, Shape({0}));
    if (examples_.batched) {
      MR_ASSIGN_OR_RETURN(splits, SplitsTensor(ctx_, column.splits, lengths));
    }
    out_.ragged_values.push_back(std::move(values));
    out_.ragged_splits.push_back(std::move(splits));
    return absl::OkStatus();
  }

  void Decode(int64_t i) {
    for (int c = 0; c < num_columns(); ++c) {
      DispatchType(FeatureTypes(), types_[c], [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (c < num_sparse()) {
          DecodeSparse<T>(i, c);
        } else if (c < num_sparse() + num_dense()) {
          DecodeDense<T>(i, c);
        } else {
          DecodeValues(view(i, c),
                       out_.ragged_values[c - num_sparse() - num_dense()].template data<T>() + starts_[c][i]);
        }
      });
    }
  }

  template <typename T>
  void DecodeSparse(int64_t i, int c) {
    const int64_t start = starts_[c][i], values = count(i, c);
    int64_t* index = out_.sparse_indices[c].data<int64_t>();
    for (int64_t k = 0; k < values; ++k) {
      if (examples_.batched) {
        index[2 * (start + k)] = i;
        index[2 * (start + k) + 1] = k;
      } else {
        index[k] = k;
      }
    }
    if (values > 0) DecodeValues(view(i, c), out_.sparse_values[c].data<T>() + start);
  }

  template <typename T>
  void DecodeDense(int64_t i, int c) {
    const int d = c - num_sparse();
    const DenseColumn& column = columns_.dense[d];
    T* row = out_.dense_values[d].data<T>() + i * row_sizes_[d];
    const int64_t values = count(i, c);
    if (values > 0) DecodeValues(view(i, c), row);
    if (column.variable()) {
      // The padding; without a default value, zeros or empty strings.
      const T padding = column.default_value.num_elements() == 1 ? column.default_value.scalar<T>() : T();
      std::fill(row + values, row + row_sizes_[d], padding);
    } else if (view(i, c).dtype == DType::kInvalid && row_sizes_[d] > 0) {
      std::copy_n(column.default_value.data<T>(), row_sizes_[d], row);
    }
  }

  KernelContext& ctx_;
  const SerializedExamples& examples_;
  const ExampleColumns& columns_;
  const int64_t n_;
  KeyIndex keys_;
  std::vector<std::pair<absl::string_view, absl::Span<const int>>> order_;
  std::vector<absl::string_view> names_;
  std::vector<DType> types_;
  // By example, then column.
  std::vector<FeatureView> views_;
  std::vector<int64_t> counts_;
  // By column, then example.
  std::vector<std::vector<int64_t>> starts_;
  std::vector<int64_t> row_sizes_;  // of dense columns: elements of one example in the output
  ParsedColumns out_;
};

}  // namespace

int64_t DenseColumn::stride() const {
  int64_t n = 1;
  for (int d = variable() ? 1 : 0; d < shape.rank(); ++d) n *= shape.dim(d);
  return n;
}

Status ExampleColumns::CheckDefaults() const {
  for (size_t d = 0; d < dense.size(); ++d) {
    const Tensor& value = dense[d].default_value;
    if (dense[d].variable()) {
      if (value.num_elements() != 1) {
        return InvalidArgument("dense_shape[", d, "] is a variable length shape: ", dense[d].shape.ToString(),
                               ", therefore def_value[", d,
                               "] must contain a single element (the padding element).  But "
                               "its shape is: ",
                               value.shape().ToString());
      }
    } else if (value.num_elements() > 0 && !dense[d].shape.IsCompatibleWith(value.shape())) {
      return InvalidArgument("def_value[", d, "].shape() == ", value.shape().ToString(),
                             " is not compatible with dense_shapes_[", d, "] == ", dense[d].shape.ToString());
    }
  }
  return absl::OkStatus();
}

Status CheckDenseShapes(absl::Span<const PartialShape> shapes, bool fully) {
  for (size_t d = 0; d < shapes.size(); ++d) {
    const PartialShape& shape = shapes[d];
    if (fully && !shape.IsFullyDefined()) {
      return InvalidArgument("dense_shapes[", d, "] is not fully defined: ", shape.ToString());
    }
    bool known = shape.known_rank();
    for (int i = 1; known && i < shape.rank(); ++i) known = shape.dim(i) >= 0;
    if (!known) {
      return InvalidArgument("dense_shapes[", d, "] has unknown rank or unknown inner dimensions: ", shape.ToString());
    }
    // Also checks that the number of elements does not overflow.
    Shape::Dims dims(shape.dims().begin(), shape.dims().end());
    if (!dims.empty() && dims[0] < 0) dims[0] = 1;
    MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat("dense_shapes[", d, "]: "), Shape::Make(dims).status()));
  }
  return absl::OkStatus();
}

std::string SerializedExamples::Name(int64_t example) const {
  return absl::StrCat("Name: ", example < static_cast<int64_t>(names.size()) ? names[example] : "<unknown>", ", ");
}

StatusOr<ParsedColumns> ParseExamples(KernelContext& ctx, const SerializedExamples& examples,
                                      const ExampleColumns& columns) {
  return ExampleParser(ctx, examples, columns).Run();
}

Status ForEachExample(KernelContext& ctx, absl::Span<const std::string> bytes,
                      absl::FunctionRef<Status(int64_t example)> fn) {
  constexpr int64_t kBytesWorthAThread = 1 << 15;
  const auto n = static_cast<int64_t>(bytes.size());
  int64_t total = 0;
  for (const std::string& example : bytes) total += static_cast<int64_t>(example.size()) + 64;
  const int64_t grain = total <= 2 * kBytesWorthAThread ? n : std::max<int64_t>(1, kBytesWorthAThread / (total / n));
  Mutex mutex;
  int64_t failed = n;
  Status status;
  ctx.ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Status one = fn(i);
      if (one.ok()) continue;
      MutexLock lock(&mutex);
      if (i < failed) {
        failed = i;
        status = std::move(one);
      }
      return;
    }
  });
  return status;
}

StatusOr<Tensor> SplitsTensor(KernelContext& ctx, DType dtype, absl::Span<const int64_t> lengths) {
  MR_ASSIGN_OR_RETURN(Tensor splits, ctx.AllocateTemp(dtype, Shape({static_cast<int64_t>(lengths.size()) + 1})));
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (dtype == DType::kInt32 && total > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("row splits of type int32 cannot hold ", total, " values");
  }
  DispatchType(IndexTypes(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = splits.data<T>();
    *out = 0;
    for (const int64_t length : lengths) {
      out[1] = *out + static_cast<T>(length);
      ++out;
    }
  });
  return splits;
}

}  // namespace millrace
