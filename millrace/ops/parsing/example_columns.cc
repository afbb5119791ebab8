#include "millrace/ops/parsing/example_columns.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "millrace/base/mutex.h"
#include "millrace/ops/parsing/feature_reader.h"

namespace millrace {
namespace {

// The number of examples that is worth a thread.
int64_t GrainOf(absl::Span<const std::string> bytes) {
  constexpr int64_t kBytesWorthAThread = 1 << 15;
  const auto n = static_cast<int64_t>(bytes.size());
  int64_t total = 0;
  for (const std::string& example : bytes) total += static_cast<int64_t>(example.size()) + 64;
  return total <= 2 * kBytesWorthAThread ? n : std::max<int64_t>(1, kBytesWorthAThread / (total / n));
}

// The name of a feature's list in tf.train.Feature, for messages.
std::string KindName(DType t) { return t == DType::kString ? "bytes" : DTypeName(t); }

// Where the values of one column are in one example. Small, because a batch has a cell for each column and example.
struct Cell {
  const char* data = nullptr;  // null if the example does not have the feature
  uint32_t size : 31 = 0;      // of `data`: the Feature until it is checked, then its list, or only the list's values
  uint32_t checked : 1 = 0;
  uint32_t count : 31 = 0;  // of values, if checked
  uint32_t direct : 1 = 0;  // `data` is the one string, or packed numbers

  Cell() = default;
  Cell(absl::string_view bytes, bool is_checked, int64_t n, bool is_direct)
      : data(bytes.data()),
        size(static_cast<uint32_t>(bytes.size())),
        checked(is_checked),
        count(static_cast<uint32_t>(n)),
        direct(is_direct) {}
  absl::string_view bytes() const { return {data, size}; }
};

// Parses one batch in two passes: first finds, checks and counts the features of every example; then, with all sizes
// known, decodes the values directly into the outputs.
class ExampleParser {
 public:
  ExampleParser(KernelContext& ctx, const SerializedExamples& examples, const ExampleColumns& columns)
      : ctx_(ctx), examples_(examples), columns_(columns), n_(static_cast<int64_t>(examples.bytes.size())) {
    for (const SparseColumn& c : columns.sparse) AddColumn(c.key, c.dtype, kAnyCount);
    for (const DenseColumn& c : columns.dense) AddColumn(c.key, c.dtype, c.variable() ? kUnchecked : c.stride());
    for (const RaggedColumn& c : columns.ragged) AddColumn(c.key, c.dtype, kAnyCount);
    cells_.resize(types_.size() * static_cast<size_t>(n_));
  }

  StatusOr<ParsedColumns> Run() {
    if (n_ > 1) LearnOrder();
    MR_RETURN_IF_ERROR(ForEachExample(ctx_, examples_.bytes, [this](int64_t i) { return Find(i); }));
    for (const SparseColumn& c : columns_.sparse) MR_RETURN_IF_ERROR(AllocateSparse(c));
    for (const DenseColumn& c : columns_.dense) MR_RETURN_IF_ERROR(AllocateDense(c));
    for (const RaggedColumn& c : columns_.ragged) MR_RETURN_IF_ERROR(AllocateRagged(c));
    ctx_.ParallelFor(n_, GrainOf(examples_.bytes), [this](int64_t begin, int64_t end) { Decode(begin, end); });
    return std::move(out_);
  }

 private:
  // What a cell of a column must have, where that is not a number of values: any number, or more than a comparison.
  static constexpr int64_t kAnyCount = -1, kUnchecked = -2;
  // How many keys of the learnt order an example may leave out before the key is looked up.
  static constexpr size_t kMostLeftOut = 4;

  // A key of the first example, and the columns that want it.
  struct KnownKey {
    absl::string_view key;
    absl::Span<const int> columns;
  };

  int num_columns() const { return static_cast<int>(types_.size()); }
  int num_sparse() const { return static_cast<int>(columns_.sparse.size()); }
  int num_dense() const { return static_cast<int>(columns_.dense.size()); }
  Cell& cell(int64_t example, int column) { return cells_[column * n_ + example]; }
  absl::Span<const Cell> cells(int column) const { return {cells_.data() + column * n_, static_cast<size_t>(n_)}; }

  void AddColumn(absl::string_view key, DType dtype, int64_t count) {
    keys_.Add(key, num_columns());
    names_.push_back(key);
    types_.push_back(dtype);
    expected_.push_back(count);
  }

  // Remembers the order of the first example's keys: a writer mostly writes all examples in one order, so that a key's
  // columns are found without looking it up.
  void LearnOrder() {
    // A malformed example is reported by Find.
    (void)VisitEntries(examples_.bytes[0], kExampleFeatures, [&](absl::string_view key, absl::string_view) {
      order_.push_back({key, keys_.Find(key)});
      return true;
    });
  }

  // The columns that want `key`. `next` is the position in the learnt order after the key before; it becomes that after
  // this one.
  absl::Span<const int> ColumnsOf(absl::string_view key, size_t* next) {
    const size_t end = std::min(*next + kMostLeftOut, order_.size());
    for (size_t at = *next; at < end; ++at) {
      if (!SameName(order_[at].key, key)) continue;
      *next = at + 1;
      return order_[at].columns;
    }
    return keys_.Find(key);
  }

  Status Find(int64_t i) {
    const std::string& bytes = examples_.bytes[i];
    Status status;
    size_t next = 0;
    const bool ok = VisitEntries(bytes, kExampleFeatures, [&](absl::string_view key, absl::string_view value) {
      for (const int c : ColumnsOf(key, &next)) {
        if (SetShortCell(value, i, c)) continue;
        FeatureView feature;
        if (!ReadFeature(value, &feature)) {
          status = InvalidArgument(examples_.Name(i), "Key: ", key, ".  Can't parse serialized Example.");
          return false;
        }
        cell(i, c) = Cell(value, false, 0, false);
      }
      return true;
    });
    if (!status.ok()) return status;
    if (!ok) {
      return InvalidArgument(examples_.Name(i), "Could not parse example input of ", bytes.size(), " bytes, value: '",
                             absl::string_view(bytes).substr(0, 256), "'");
    }
    for (int c = 0; c < num_columns(); ++c) {
      if (!cell(i, c).checked) MR_RETURN_IF_ERROR(CheckCell(i, c));
    }
    return absl::OkStatus();
  }

  // Finds and counts the values at once if they are as most are: short, and what the column wants.
  bool SetShortCell(absl::string_view feature, int64_t i, int c) {
    ShortValues values;
    if (!ReadShortFeature(feature, &values) || values.dtype != types_[c]) return false;
    int64_t count = 1;
    if (values.dtype == DType::kFloat) {
      if (values.bytes.size() % sizeof(float) != 0) return false;
      count = static_cast<int64_t>(values.bytes.size() / sizeof(float));
    } else if (values.dtype == DType::kInt64) {
      count = CountVarints(values.bytes);
      if (count < 0) return false;
    }
    if (expected_[c] != count && expected_[c] != kAnyCount) return false;
    cell(i, c) = Cell(values.bytes, true, count, true);
    return true;
  }

  Status CheckCell(int64_t i, int c) {
    FeatureView feature;
    // Find has seen that it can be read.
    if (cell(i, c).data != nullptr) (void)ReadFeature(cell(i, c).bytes(), &feature);
    const DenseColumn* dense =
        c >= num_sparse() && c < num_sparse() + num_dense() ? &columns_.dense[c - num_sparse()] : nullptr;
    if (feature.dtype == DType::kInvalid) {
      cell(i, c) = Cell();
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
    cell(i, c) = Cell(feature.values, true, values, false);
    return absl::OkStatus();
  }

  // Computes the offset of each example's values, and returns their total number.
  int64_t FillStarts(int c) {
    std::vector<int64_t>& starts = starts_.emplace_back(static_cast<size_t>(n_));
    int64_t total = 0;
    const absl::Span<const Cell> column = cells(c);
    for (int64_t i = 0; i < n_; ++i) {
      starts[i] = total;
      total += column[i].count;
    }
    return total;
  }
  int64_t MaxCount(int c) {
    int64_t most = 0;
    for (const Cell& one : cells(c)) most = std::max<int64_t>(most, one.count);
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
    starts_.emplace_back();  // rows start at multiples of their size
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
    for (const Cell& one : cells(c)) lengths.push_back(one.count);
    MR_ASSIGN_OR_RETURN(Tensor values, ctx_.AllocateTemp(column.dtype, Shape({total})));
    Tensor splits(column.splits, Shape({0}));
    if (examples_.batched) {
      MR_ASSIGN_OR_RETURN(splits, SplitsTensor(ctx_, column.splits, lengths));
    }
    out_.ragged_values.push_back(std::move(values));
    out_.ragged_splits.push_back(std::move(splits));
    return absl::OkStatus();
  }

  void Decode(int64_t begin, int64_t end) {
    for (int c = 0; c < num_columns(); ++c) {
      DispatchType(FeatureTypes(), types_[c], [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (c < num_sparse()) {
          DecodeSparse<T>(c, begin, end);
        } else if (c < num_sparse() + num_dense()) {
          DecodeDense<T>(c, begin, end);
        } else {
          DecodeList(c, begin, end, out_.ragged_values[c - num_sparse() - num_dense()].template data<T>());
        }
      });
    }
  }

  static void DecodeDirect(absl::string_view bytes, float* out) { std::memcpy(out, bytes.data(), bytes.size()); }
  static void DecodeDirect(absl::string_view bytes, int64_t* out) { DecodeVarints(bytes, out); }
  static void DecodeDirect(absl::string_view bytes, std::string* out) { out->assign(bytes.data(), bytes.size()); }

  template <typename T>
  void DecodeCell(const Cell& one, int c, T* out) const {
    if (one.direct) {
      DecodeDirect(one.bytes(), out);
    } else {
      DecodeValues({types_[c], one.bytes()}, out);
    }
  }

  // Values of all examples one after another.
  template <typename T>
  void DecodeList(int c, int64_t begin, int64_t end, T* out) const {
    const absl::Span<const Cell> column = cells(c);
    for (int64_t i = begin; i < end; ++i) {
      if (column[i].count > 0) DecodeCell(column[i], c, out + starts_[c][i]);
    }
  }

  template <typename T>
  void DecodeSparse(int c, int64_t begin, int64_t end) {
    const absl::Span<const Cell> column = cells(c);
    int64_t* const indices = out_.sparse_indices[c].data<int64_t>();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t start = starts_[c][i], values = column[i].count;
      int64_t* index = indices + (examples_.batched ? 2 * start : start);
      for (int64_t k = 0; k < values; ++k) {
        if (examples_.batched) *index++ = i;
        *index++ = k;
      }
    }
    DecodeList(c, begin, end, out_.sparse_values[c].data<T>());
  }

  template <typename T>
  void DecodeDense(int c, int64_t begin, int64_t end) {
    const int d = c - num_sparse();
    const DenseColumn& column = columns_.dense[d];
    const int64_t size = row_sizes_[d];
    const bool variable = column.variable();
    for (int64_t i = begin; i < end; ++i) {
      const Cell& one = cell(i, c);
      T* row = out_.dense_values[d].data<T>() + i * size;
      if (one.count > 0) DecodeCell(one, c, row);
      if (variable) {
        // The padding; without a default value, zeros or empty strings.
        const T padding = column.default_value.num_elements() == 1 ? column.default_value.scalar<T>() : T();
        std::fill(row + one.count, row + size, padding);
      } else if (one.data == nullptr && size > 0) {
        std::copy_n(column.default_value.data<T>(), size, row);
      }
    }
  }

  KernelContext& ctx_;
  const SerializedExamples& examples_;
  const ExampleColumns& columns_;
  const int64_t n_;
  KeyIndex keys_;
  std::vector<KnownKey> order_;
  std::vector<absl::string_view> names_;
  std::vector<DType> types_;
  std::vector<int64_t> expected_;  // counts, by column
  // By column, then example.
  std::vector<Cell> cells_;
  std::vector<std::vector<int64_t>> starts_;  // not of dense columns
  std::vector<int64_t> row_sizes_;            // of dense columns: elements of one example in the output
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
  const auto n = static_cast<int64_t>(bytes.size());
  Mutex mutex;
  int64_t failed = n;
  Status status;
  ctx.ParallelFor(n, GrainOf(bytes), [&](int64_t begin, int64_t end) {
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
