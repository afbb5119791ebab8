// SetSize, DenseToDenseSetOperation, DenseToSparseSetOperation, SparseToSparseSetOperation: sets in the last dimension.
#include <map>
#include <set>

#include "millrace/ops/sparse/sparse_input.h"

namespace millrace::sparse {
namespace {

using SetTypes = Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, std::string>;

enum class SetOp { kAMinusB, kBMinusA, kIntersection, kUnion };

// Sets are built of two types only: strings, and int64_t for all integers.
template <typename T>
using SetElement = std::conditional_t<std::is_same_v<T, std::string>, std::string, int64_t>;

template <typename V>
std::vector<V> Values(const Tensor& tensor) {
  std::vector<V> values;
  DispatchType(SetTypes{}, tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<SetElement<T>, V>)
      values.assign(tensor.data<T>(), tensor.data<T>() + tensor.num_elements());
  });
  return values;
}

template <typename V>
void Store(std::vector<V> values, Tensor* to) {
  DispatchType(SetTypes{}, to->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<SetElement<T>, V>) {
      for (size_t i = 0; i < values.size(); ++i) to->data<T>()[i] = static_cast<T>(std::move(values[i]));
    }
  });
}

// Calls fn with a value of the type of the sets of `dtype`.
template <typename Fn>
Status WithSetElement(DType dtype, Fn fn) {
  return dtype == DType::kString ? fn(std::string()) : fn(int64_t{});
}

// The sets of one operand by group (the indices without the last).
template <typename T>
struct Sets {
  using Group = std::vector<int64_t>;
  std::map<Group, std::set<T>> by_group;
  Shape groups;  // shape of the operand without the last dimension
};

// Entries must lie inside the shape and, where asked for, be in order.
Status CheckEntries(const SparseInput& input, bool in_order) {
  MR_RETURN_IF_ERROR(input.CheckBounds());
  for (int64_t i = 1; in_order && i < input.count(); ++i) {
    const int order = CompareRows(input.Row(i - 1), input.Row(i), input.rank());
    if (order >= 0) {
      return InvalidArgument("indices[", i, "] is ", order == 0 ? "repeated" : "out of order",
                             ". Many sparse ops require sorted indices.");
    }
  }
  return absl::OkStatus();
}

Status CheckRank(int rank, const char* what) {
  if (rank >= 2) return absl::OkStatus();
  return InvalidArgument(what, " must have a rank of at least 2, but has ", rank);
}

template <typename T>
StatusOr<Sets<T>> SparseSets(const SparseInput& input, bool validate) {
  MR_RETURN_IF_ERROR(CheckEntries(input, validate));
  Sets<T> sets;
  sets.groups = input.shape;
  sets.groups.RemoveDim(input.rank() - 1);
  std::vector<T> values = Values<T>(*input.values);
  for (int64_t i = 0; i < input.count(); ++i) {
    const int64_t* row = input.Row(i);
    sets.by_group[typename Sets<T>::Group(row, row + input.rank() - 1)].insert(std::move(values[i]));
  }
  return sets;
}

template <typename T>
Sets<T> DenseSets(const Tensor& input) {
  Sets<T> sets;
  sets.groups = input.shape();
  sets.groups.RemoveDim(input.rank() - 1);
  const int64_t width = input.dim(input.rank() - 1), count = width == 0 ? 0 : input.num_elements() / width;
  typename Sets<T>::Group group(sets.groups.rank());
  const std::vector<T> values = Values<T>(input);
  for (int64_t g = 0; g < count; ++g) {
    int64_t rest = g;
    for (int d = sets.groups.rank() - 1; d >= 0; --d) {
      group[d] = rest % sets.groups.dim(d);
      rest /= sets.groups.dim(d);
    }
    sets.by_group[group].insert(values.begin() + g * width, values.begin() + (g + 1) * width);
  }
  return sets;
}

template <typename T>
std::vector<T> Combine(SetOp op, const std::set<T>& a, const std::set<T>& b) {
  std::vector<T> out;
  const auto to = std::back_inserter(out);
  switch (op) {
    case SetOp::kAMinusB:
      std::set_difference(a.begin(), a.end(), b.begin(), b.end(), to);
      break;
    case SetOp::kBMinusA:
      std::set_difference(b.begin(), b.end(), a.begin(), a.end(), to);
      break;
    case SetOp::kIntersection:
      std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), to);
      break;
    case SetOp::kUnion:
      std::set_union(a.begin(), a.end(), b.begin(), b.end(), to);
      break;
  }
  return out;
}

template <typename T>
Status EmitSets(KernelContext& ctx, SetOp op, const Sets<T>& a, const Sets<T>& b) {
  if (a.groups != b.groups) {
    return InvalidArgument("Mismatched group shapes ", a.groups.ToString(), " vs ", b.groups.ToString());
  }
  std::map<typename Sets<T>::Group, std::vector<T>> results;
  static const std::set<T> kNone;
  int64_t count = 0, widest = 0;
  const auto add = [&](const typename Sets<T>::Group& group, const std::set<T>& x, const std::set<T>& y) {
    std::vector<T> result = Combine(op, x, y);
    count += static_cast<int64_t>(result.size());
    widest = std::max(widest, static_cast<int64_t>(result.size()));
    if (!result.empty()) results[group] = std::move(result);
  };
  for (const auto& [group, set] : a.by_group) {
    const auto other = b.by_group.find(group);
    add(group, set, other == b.by_group.end() ? kNone : other->second);
  }
  for (const auto& [group, set] : b.by_group) {
    if (a.by_group.count(group) == 0) add(group, kNone, set);
  }
  const int rank = a.groups.rank() + 1;
  MR_ASSIGN_OR_RETURN(Tensor * indices, AllocateIndices(ctx, 0, count, rank));
  MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({count})));
  std::vector<T> elements;
  elements.reserve(static_cast<size_t>(count));
  int64_t* row = indices->data<int64_t>();
  for (auto& [group, set] : results) {
    for (size_t i = 0; i < set.size(); ++i, row += rank) {
      std::copy(group.begin(), group.end(), row);
      row[rank - 1] = static_cast<int64_t>(i);
      elements.push_back(std::move(set[i]));
    }
  }
  Store(std::move(elements), values);
  Shape shape = a.groups;
  shape.AddDim(widest);
  return SetShapeOutput(ctx, 2, shape.dims());
}

class SetOperationKernel : public Kernel {
 public:
  explicit SetOperationKernel(KernelInit& init) {
    init.Attr("validate_indices", &validate_);
    std::string op;
    init.Attr("set_operation", &op);
    std::transform(op.begin(), op.end(), op.begin(), [](unsigned char c) { return std::tolower(c); });
    if (op == "a-b") {
      op_ = SetOp::kAMinusB;
    } else if (op == "b-a") {
      op_ = SetOp::kBMinusA;
    } else if (op == "intersection") {
      op_ = SetOp::kIntersection;
    } else if (op == "union") {
      op_ = SetOp::kUnion;
    } else {
      init.Fail(InvalidArgument("Invalid set_operation ", op, "."));
    }
    NeedType(init, SetTypes{}, init.output_type(1));
  }

  Status Compute(KernelContext& ctx) override {
    return WithSetElement(ctx.output_type(1), [&](auto element) { return Run<decltype(element)>(ctx); });
  }

 private:
  template <typename T>
  Status Run(KernelContext& ctx) const {
    // A sparse operand is three inputs. If only one is sparse, it is the second.
    const int inputs = ctx.num_inputs();
    MR_ASSIGN_OR_RETURN(const Sets<T> a, Read<T>(ctx, 0, inputs == 6));
    MR_ASSIGN_OR_RETURN(const Sets<T> b, Read<T>(ctx, inputs == 6 ? 3 : 1, inputs > 2));
    return EmitSets(ctx, op_, a, b);
  }
  template <typename T>
  StatusOr<Sets<T>> Read(KernelContext& ctx, int first, bool is_sparse) const {
    if (is_sparse) {
      MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(ctx, first));
      MR_RETURN_IF_ERROR(CheckRank(input.rank(), "a set"));
      return SparseSets<T>(input, validate_);
    }
    MR_RETURN_IF_ERROR(CheckRank(ctx.input(first).rank(), "a set"));
    return DenseSets<T>(ctx.input(first));
  }

  bool validate_ = true;
  SetOp op_ = SetOp::kUnion;
};

class SetSizeKernel : public Kernel {
 public:
  explicit SetSizeKernel(KernelInit& init) {
    init.Attr("validate_indices", &validate_);
    NeedType(init, SetTypes{}, init.input_type(1));
  }

  Status Compute(KernelContext& ctx) override {
    if (const Shape& shape = ctx.input(2).shape(); shape.rank() != 1) {
      return InvalidArgument("Shape must be a 1D tensor, but is of shape ", shape.ToString());
    }
    MR_ASSIGN_OR_RETURN(const SparseInput input, ReadSparse(ctx, 0));
    MR_RETURN_IF_ERROR(CheckRank(input.rank(), "a set"));
    Shape groups = input.shape;
    groups.RemoveDim(input.rank() - 1);
    MR_RETURN_IF_ERROR(Shape::Make(groups.dims()).status());
    return WithSetElement(input.values->dtype(), [&](auto element) -> Status {
      using T = decltype(element);
      MR_ASSIGN_OR_RETURN(const Sets<T> sets, SparseSets<T>(input, validate_));
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, groups));
      std::fill_n(out->data<int32_t>(), out->num_elements(), 0);
      for (const auto& [group, set] : sets.by_group) {
        int64_t at = 0;
        for (int d = 0; d < groups.rank(); ++d) at = at * groups.dim(d) + group[d];
        out->data<int32_t>()[at] = static_cast<int32_t>(set.size());
      }
      return absl::OkStatus();
    });
  }

 private:
  bool validate_ = true;
};

Status SetOperationShape(ShapeContext& c) {
  int64_t rank = -1;
  for (int i : {0, c.num_inputs() == 2 ? 1 : -1}) {
    if (i < 0 || c.num_inputs() == 6) continue;
    MR_ASSIGN_OR_RETURN(const PartialShape dense, c.WithRankAtLeast(i, 2));
    if (dense.known_rank()) rank = dense.rank();
  }
  if (c.num_inputs() != 2) {
    for (int first : {c.num_inputs() == 6 ? 0 : 1, 3}) {
      if (first + 2 >= c.num_inputs()) continue;
      MR_ASSIGN_OR_RETURN(const int64_t sparse, SparseRank(c, first));
      rank = std::max(rank, sparse);
    }
  }
  SetSparseOutput(c, 0, -1, rank);
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(DenseToDenseSetOperation)
    .Input("set1: T")
    .Input("set2: T")
    .Output("result_indices: int64")
    .Output("result_values: T")
    .Output("result_shape: int64")
    .Attr("set_operation: string")
    .Attr("validate_indices: bool = true")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, string}")
    .Shape(SetOperationShape)
    .NotDifferentiable()
    .Summary("Union, intersection or difference of sets in the last dimension");
MILLRACE_OP(DenseToSparseSetOperation)
    .Input("set1: T")
    .Input("set2_indices: int64")
    .Input("set2_values: T")
    .Input("set2_shape: int64")
    .Output("result_indices: int64")
    .Output("result_values: T")
    .Output("result_shape: int64")
    .Attr("set_operation: string")
    .Attr("validate_indices: bool = true")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, string}")
    .Shape(SetOperationShape)
    .NotDifferentiable()
    .Summary("Union, intersection or difference of sets in the last dimension");
MILLRACE_OP(SparseToSparseSetOperation)
    .Input("set1_indices: int64")
    .Input("set1_values: T")
    .Input("set1_shape: int64")
    .Input("set2_indices: int64")
    .Input("set2_values: T")
    .Input("set2_shape: int64")
    .Output("result_indices: int64")
    .Output("result_values: T")
    .Output("result_shape: int64")
    .Attr("set_operation: string")
    .Attr("validate_indices: bool = true")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, string}")
    .Shape(SetOperationShape)
    .NotDifferentiable()
    .Summary("Union, intersection or difference of sets in the last dimension");
MILLRACE_OP(SetSize)
    .Input("set_indices: int64")
    .Input("set_values: T")
    .Input("set_shape: int64")
    .Output("size: int32")
    .Attr("validate_indices: bool = true")
    .Attr("T: {int8, int16, int32, int64, uint8, uint16, string}")
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Summary("The number of distinct elements of the sets in the last dimension");

MILLRACE_KERNEL(DenseToDenseSetOperation, kCpu, SetOperationKernel);
MILLRACE_KERNEL(DenseToSparseSetOperation, kCpu, SetOperationKernel);
MILLRACE_KERNEL(SparseToSparseSetOperation, kCpu, SetOperationKernel);
MILLRACE_KERNEL(SetSize, kCpu, SetSizeKernel);

}  // namespace millrace::sparse
