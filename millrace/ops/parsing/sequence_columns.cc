#include "millrace/ops/parsing/sequence_columns.h"

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

// One list of one example.
struct ListView {
  bool found = false;
  absl::string_view bytes;
  int64_t steps = 0;
  int64_t values = 0;   // of all steps
  int64_t longest = 0;  // the largest number of values in a step
  // Offsets among the steps and values of all examples, set after counting.
  int64_t first_step = 0;
  int64_t first_value = 0;
};

struct Totals {
  int64_t steps = 0, values = 0, most_steps = 0, longest = 0;
};

class ListParser {
 public:
  ListParser(KernelContext& ctx, const SerializedExamples& examples, const ListColumns& columns)
      : ctx_(ctx), examples_(examples), columns_(columns), n_(static_cast<int64_t>(examples.bytes.size())) {
    for (const SparseColumn& c : columns.sparse) AddColumn(c.key, c.dtype);
    for (const DenseListColumn& c : columns.dense) AddColumn(c.key, c.dtype);
    for (const RaggedColumn& c : columns.ragged) AddColumn(c.key, c.dtype);
    views_.resize(types_.size() * static_cast<size_t>(n_));
  }

  StatusOr<ParsedLists> Run() {
    MR_RETURN_IF_ERROR(ForEachExample(ctx_, examples_.bytes, [this](int64_t i) { return Find(i); }));
    int c = 0;
    for (const SparseColumn& column : columns_.sparse) MR_RETURN_IF_ERROR(AllocateSparse(column, AddUp(c++)));
    for (const DenseListColumn& column : columns_.dense) {
      MR_RETURN_IF_ERROR(AllocateDense(column, c, AddUp(c)));
      ++c;
    }
    for (const RaggedColumn& column : columns_.ragged) {
      MR_RETURN_IF_ERROR(AllocateRagged(column, c, AddUp(c)));
      ++c;
    }
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
  ListView& view(int64_t example, int column) { return views_[example * num_columns() + column]; }

  void AddColumn(absl::string_view key, DType dtype) {
    keys_.Add(key, num_columns());
    names_.push_back(key);
    types_.push_back(dtype);
  }

  Status Find(int64_t i) {
    const bool ok =
        ForEachEntry(examples_.bytes[i], kSequenceFeatureLists, [&](absl::string_view key, absl::string_view value) {
          for (const int c : keys_.Find(key)) {
            view(i, c).found = true;
            view(i, c).bytes = value;
          }
          return true;
        });
    if (!ok) return InvalidArgument(examples_.Name(i), "Invalid protocol message input, example id: ", i);
    for (int c = 0; c < num_columns(); ++c) MR_RETURN_IF_ERROR(CheckList(i, c));
    return absl::OkStatus();
  }

  Status CheckList(int64_t i, int c) {
    ListView& list = view(i, c);
    const bool is_dense = c >= num_sparse() && c < num_sparse() + num_dense();
    const DenseListColumn* dense = is_dense ? &columns_.dense[c - num_sparse()] : nullptr;
    if (!list.found) {
      if (dense == nullptr || dense->may_be_missing) return absl::OkStatus();
      return InvalidArgument(examples_.Name(i), "Feature list '", names_[c],
                             "' is required but could not be found.  Did you mean to include it in "
                             "feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?");
    }
    Status status;
    const bool ok = ForEachFeature(list.bytes, [&](absl::string_view bytes) {
      FeatureView feature;
      const int64_t values = ReadFeature(bytes, &feature) ? CountValues(feature) : -1;
      if (values < 0) return false;
      if (feature.dtype != DType::kInvalid && feature.dtype != types_[c]) {
        status =
            InvalidArgument(examples_.Name(i), "Feature list: ", names_[c], ", Index: ", list.steps,
                            ".  Data types don't match. Expected type: ", types_[c], ", Actual type: ", feature.dtype);
      } else if (dense != nullptr && values != dense->shape.num_elements()) {
        status = InvalidArgument(examples_.Name(i), "Key: ", names_[c], ", Index: ", list.steps, ".  Number of ",
                                 types_[c], " values != expected.  values size: ", values,
                                 " but output shape: ", dense->shape.ToString());
      }
      ++list.steps;
      list.values += values;
      list.longest = std::max(list.longest, values);
      return status.ok();
    });
    if (!status.ok() || ok) return status;
    return InvalidArgument(examples_.Name(i), "Feature list: ", names_[c], ", Index: ", list.steps,
                           ".  Can't parse serialized SequenceExample: the list is malformed.");
  }

  Totals AddUp(int c) {
    Totals t;
    for (int64_t i = 0; i < n_; ++i) {
      ListView& list = view(i, c);
      list.first_step = t.steps;
      list.first_value = t.values;
      t.steps += list.steps;
      t.values += list.values;
      t.most_steps = std::max(t.most_steps, list.steps);
      t.longest = std::max(t.longest, list.longest);
    }
    return t;
  }

  Status AllocateSparse(const SparseColumn& column, const Totals& t) {
    MR_ASSIGN_OR_RETURN(Tensor indices, ctx_.AllocateTemp(DType::kInt64, Shape({t.values, examples_.batched ? 3 : 2})));
    MR_ASSIGN_OR_RETURN(Tensor values, ctx_.AllocateTemp(column.dtype, Shape({t.values})));
    out_.sparse_indices.push_back(std::move(indices));
    out_.sparse_values.push_back(std::move(values));
    out_.sparse_shapes.push_back(examples_.batched ? Tensor::Of<int64_t>({n_, t.most_steps, t.longest})
                                                   : Tensor::Of<int64_t>({t.most_steps, t.longest}));
    return absl::OkStatus();
  }

  Status AllocateDense(const DenseListColumn& column, int c, const Totals& t) {
    Shape::Dims dims;
    if (examples_.batched) dims.push_back(n_);
    dims.push_back(t.most_steps);
    dims.insert(dims.end(), column.shape.dims().begin(), column.shape.dims().end());
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor values, ctx_.AllocateTemp(column.dtype, shape));
    MR_ASSIGN_OR_RETURN(Tensor lengths, ctx_.AllocateTemp(DType::kInt64, examples_.batched ? Shape({n_}) : Shape()));
    for (int64_t i = 0; i < n_; ++i) lengths.data<int64_t>()[i] = view(i, c).steps;
    rows_.push_back(n_ == 0 ? 0 : values.num_elements() / n_);
    out_.dense_values.push_back(std::move(values));
    out_.dense_lengths.push_back(std::move(lengths));
    return absl::OkStatus();
  }

  Status AllocateRagged(const RaggedColumn& column, int c, const Totals& t) {
    if (column.splits == DType::kInt32 && t.values > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("Feature list: ", names_[c], ": row splits of type int32 cannot hold ", t.values,
                             " values");
    }
    MR_ASSIGN_OR_RETURN(Tensor values, ctx_.AllocateTemp(column.dtype, Shape({t.values})));
    MR_ASSIGN_OR_RETURN(Tensor inner, ctx_.AllocateTemp(column.splits, Shape({t.steps + 1})));
    Tensor outer(column.splits, Shape({0}));
    if (examples_.batched) {
      std::vector<int64_t> steps;
      for (int64_t i = 0; i < n_; ++i) steps.push_back(view(i, c).steps);
      MR_ASSIGN_OR_RETURN(outer, SplitsTensor(ctx_, column.splits, steps));
    }
    SetSplit(inner, 0, 0);
    out_.ragged_values.push_back(std::move(values));
    out_.ragged_outer_splits.push_back(std::move(outer));
    out_.ragged_inner_splits.push_back(std::move(inner));
    return absl::OkStatus();
  }

  static void SetSplit(Tensor& splits, int64_t at, int64_t value) {
    if (splits.dtype() == DType::kInt32) {
      splits.data<int32_t>()[at] = static_cast<int32_t>(value);
    } else {
      splits.data<int64_t>()[at] = value;
    }
  }

  void Decode(int64_t i) {
    for (int c = 0; c < num_columns(); ++c) {
      DispatchType(FeatureTypes(), types_[c], [&](auto tag) {
        using T = typename decltype(tag)::type;
        if (c < num_sparse()) {
          DecodeSparse<T>(i, c, view(i, c));
        } else if (c < num_sparse() + num_dense()) {
          DecodeDense<T>(i, c - num_sparse(), view(i, c));
        } else {
          DecodeRagged<T>(c - num_sparse() - num_dense(), view(i, c));
        }
      });
    }
  }

  // Decodes the steps of one list one after the other from `out` on; calls after_step(values) for each.
  template <typename T, typename Fn>
  static void DecodeSteps(const ListView& list, T* out, Fn&& after_step) {
    ForEachFeature(list.bytes, [&](absl::string_view bytes) {
      FeatureView feature;
      ReadFeature(bytes, &feature);
      const int64_t values = CountValues(feature);
      if (values > 0) DecodeValues(feature, out);
      out += values;
      after_step(values);
      return true;
    });
  }

  template <typename T>
  void DecodeSparse(int64_t i, int c, const ListView& list) {
    int64_t* index = out_.sparse_indices[c].data<int64_t>() + list.first_value * (examples_.batched ? 3 : 2);
    int64_t step = 0;
    DecodeSteps(list, out_.sparse_values[c].data<T>() + list.first_value, [&](int64_t values) {
      for (int64_t k = 0; k < values; ++k) {
        if (examples_.batched) *index++ = i;
        *index++ = step;
        *index++ = k;
      }
      ++step;
    });
  }

  template <typename T>
  void DecodeDense(int64_t i, int d, const ListView& list) {
    T* row = out_.dense_values[d].data<T>() + i * rows_[d];
    DecodeSteps(list, row, [](int64_t) {});
    std::fill(row + list.values, row + rows_[d], T());
  }

  template <typename T>
  void DecodeRagged(int r, const ListView& list) {
    Tensor& splits = out_.ragged_inner_splits[r];
    int64_t step = list.first_step, end = list.first_value;
    DecodeSteps(list, out_.ragged_values[r].data<T>() + list.first_value, [&](int64_t values) {
      end += values;
      SetSplit(splits, ++step, end);
    });
  }

  KernelContext& ctx_;
  const SerializedExamples& examples_;
  const ListColumns& columns_;
  const int64_t n_;
  KeyIndex keys_;
  std::vector<absl::string_view> names_;
  std::vector<DType> types_;
  std::vector<ListView> views_;  // by example, then column
  std::vector<int64_t> rows_;    // of dense columns: elements of one example in the output
  ParsedLists out_;
};

}  // namespace

StatusOr<ParsedLists> ParseFeatureLists(KernelContext& ctx, const SerializedExamples& examples,
                                        const ListColumns& columns) {
  return ListParser(ctx, examples, columns).Run();
}

}  // namespace millrace
