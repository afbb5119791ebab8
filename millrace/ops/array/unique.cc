// Unique and its variants: the distinct elements of a vector, or slices along an axis, in order of first occurrence.
// ListDiff: the elements of one list that are not in another.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/copy_elements.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Converts elements to keys such that equal keys mean equal elements. One key type for all numbers limits the number of
// hash table instantiations. -0 equals 0; a NaN equals nothing (see IsNan).
template <typename T>
auto KeyOf(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return absl::string_view(value);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(value);
  } else {
    const double d = static_cast<double>(value);
    uint64_t bits;
    std::memcpy(&bits, &d, sizeof(bits));
    return d == 0 ? uint64_t{0} : bits;
  }
}

template <typename T>
bool IsNan(const T& value) {
  if constexpr (std::is_same_v<T, std::string> || std::is_integral_v<T>) {
    return false;
  } else {
    return value != value;
  }
}

// Maps keys to the numbers of distinct elements. Open addressing; twice as fast as a general hash table.
class KeyNumbers {
 public:
  explicit KeyNumbers(int64_t n) : slots_(std::bit_ceil<uint64_t>(std::clamp<int64_t>(2 * n, 16, 4096))) {}

  // The number of the key; a new key gets `next`.
  int64_t Emplace(uint64_t key, int64_t next) {
    Slot& slot = Find(key);
    if (slot.number >= 0) return slot.number;
    slot = {key, next};
    if (2 * ++used_ > slots_.size()) Grow();
    return next;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    int64_t number = -1;
  };
  Slot& Find(uint64_t key) {
    size_t at = absl::HashOf(key) & (slots_.size() - 1);
    while (slots_[at].number >= 0 && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
  }
  void Grow() {
    const std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(4 * slots_.size()));
    for (const Slot& slot : before) {
      if (slot.number >= 0) Find(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t used_ = 0;
};
// The same for strings.
class StringNumbers {
 public:
  explicit StringNumbers(int64_t n) {}
  int64_t Emplace(absl::string_view key, int64_t next) { return numbers_.emplace(key, next).first->second; }

 private:
  absl::flat_hash_map<absl::string_view, int64_t> numbers_;
};

using UniqueTypes = JoinTypes<RealTypes, Types<bool, std::string>>::type;

// The result of Unique: for each element (or slice) the number of its distinct value, and the first occurrence of each.
struct Distinct {
  std::vector<int64_t> ids;
  std::vector<int64_t> firsts;
  std::vector<int64_t> counts;

  void Add(int64_t i, int64_t id) {
    if (id == static_cast<int64_t>(firsts.size())) {
      firsts.push_back(i);
      counts.push_back(0);
    }
    ids.push_back(id);
    ++counts[id];
  }
};

template <typename T>
Distinct FindElements(const T* x, int64_t n) {
  Distinct found;
  found.ids.reserve(n);
  std::conditional_t<std::is_same_v<T, std::string>, StringNumbers, KeyNumbers> seen(n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t next = static_cast<int64_t>(found.firsts.size());
    found.Add(i, IsNan(x[i]) ? next : seen.Emplace(KeyOf(x[i]), next));
  }
  return found;
}

// Slices along an axis of x viewed as [outer, n, inner].
template <typename T>
Distinct FindSlices(const T* x, int64_t outer, int64_t n, int64_t inner) {
  Distinct found;
  absl::flat_hash_map<std::vector<decltype(KeyOf(x[0]))>, int64_t> seen;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<decltype(KeyOf(x[0]))> key;
    key.reserve(outer * inner);
    bool has_nan = false;
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t j = 0; j < inner; ++j) {
        const T& value = x[(o * n + i) * inner + j];
        key.push_back(KeyOf(value));
        has_nan = has_nan || IsNan(value);
      }
    }
    const int64_t next = static_cast<int64_t>(found.firsts.size());
    found.Add(i, has_nan ? next : seen.emplace(std::move(key), next).first->second);
  }
  return found;
}

class UniqueKernel : public Kernel {
 public:
  explicit UniqueKernel(KernelInit& init) : has_axis_(init.node().num_inputs() > 1) {
    if (!DispatchType(UniqueTypes(), init.input_type(0), [](auto) {})) {
      FailDType(init, init.input_type(0));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const int axis, Axis(ctx));
    const int64_t outer = x.shape().Product(0, axis);
    const int64_t n = x.dim(axis);
    const int64_t inner = x.shape().Product(axis + 1, x.rank());
    Distinct found;
    DispatchType(UniqueTypes(), x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      found = x.rank() == 1 ? FindElements(x.data<T>(), n) : FindSlices(x.data<T>(), outer, n, inner);
    });
    const int64_t distinct = static_cast<int64_t>(found.firsts.size());
    Shape shape = x.shape();
    shape.set_dim(axis, distinct);
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, shape));
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t i = 0; i < distinct; ++i) {
        CopyElements(x.dtype(), x.raw_data(), (o * n + found.firsts[i]) * inner, y->raw_data(),
                     (o * distinct + i) * inner, inner);
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * ids, ctx.AllocateOutput(1, Shape({n})));
    MR_RETURN_IF_ERROR(WriteInts(found.ids, ids));
    if (ctx.num_outputs() < 3) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor * counts, ctx.AllocateOutput(2, Shape({distinct})));
    return WriteInts(found.counts, counts);
  }

 private:
  StatusOr<int> Axis(KernelContext& ctx) const {
    const Tensor& x = ctx.input(0);
    if (!has_axis_ || ctx.input(1).num_elements() == 0) {
      if (x.rank() != 1) {
        return InvalidArgument("unique expects a 1D vector, got shape ", x.shape().ToString());
      }
      return 0;
    }
    MR_ASSIGN_OR_RETURN(const int64_t axis, ReadInt(ctx.input(1), "axis"));
    return ReadAxis(axis, x.rank(), "axis");
  }

  const bool has_axis_;
};

Status UniqueShape(ShapeContext& c) {
  c.set_output(1, PartialShape({-1}));
  if (c.num_outputs() > 2) c.set_output(2, PartialShape({-1}));
  const PartialShape& x = c.input(0);
  int axis = 0;
  if (c.num_inputs() > 1) {
    const Tensor* value = c.constant(1);
    if (value == nullptr) {
      if (x.known_rank()) c.set_output(0, PartialShape::UnknownOfRank(x.rank()));
      return absl::OkStatus();
    }
    if (value->num_elements() > 0 && x.known_rank()) {
      MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(*value, "axis"));
      MR_ASSIGN_OR_RETURN(axis, ReadAxis(wanted, x.rank(), "axis"));
    }
  }
  if (!x.known_rank()) return absl::OkStatus();
  if (x.rank() == 0) return InvalidArgument("unique expects at least a vector, got a scalar");
  PartialShape y = x;
  y.set_dim(axis, -1);
  c.set_output(0, y);
  c.set_output(1, PartialShape({x.dim(axis)}));
  return absl::OkStatus();
}

class ListDiffKernel : public Kernel {
 public:
  explicit ListDiffKernel(KernelInit& init) {
    if (!DispatchType(UniqueTypes(), init.input_type(0), [](auto) {})) {
      FailDType(init, init.input_type(0));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& y = ctx.input(1);
    if (x.rank() != 1) return InvalidArgument("x should be a 1D vector, got ", x.shape().ToString());
    if (y.rank() != 1) return InvalidArgument("y should be a 1D vector, got ", y.shape().ToString());
    std::vector<int64_t> kept;
    DispatchType(UniqueTypes(), x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* in_x = x.data<T>();
      const T* in_y = y.data<T>();
      absl::flat_hash_set<decltype(KeyOf(in_y[0]))> without;
      for (int64_t i = 0; i < y.num_elements(); ++i) without.insert(KeyOf(in_y[i]));
      for (int64_t i = 0; i < x.num_elements(); ++i) {
        if (IsNan(in_x[i]) || !without.contains(KeyOf(in_x[i]))) kept.push_back(i);
      }
    });
    const Shape shape({static_cast<int64_t>(kept.size())});
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    for (size_t i = 0; i < kept.size(); ++i) {
      CopyElements(x.dtype(), x.raw_data(), kept[i], out->raw_data(), static_cast<int64_t>(i), 1);
    }
    MR_ASSIGN_OR_RETURN(Tensor * ids, ctx.AllocateOutput(1, shape));
    return WriteInts(kept, ids);
  }
};

Status ListDiffShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  c.set_output(0, PartialShape({-1}));
  c.set_output(1, PartialShape({-1}));
  return absl::OkStatus();
}

MILLRACE_OP(Unique)
    .Input("x: T")
    .Output("y: T")
    .Output("idx: out_idx")
    .Attr("T: type")
    .Attr("out_idx: {int32, int64} = int32")
    .Shape(UniqueShape)
    .NotDifferentiable()
    .Summary("The distinct elements of a vector.");
MILLRACE_KERNEL(Unique, kCpu, UniqueKernel);
MILLRACE_HOST_KERNEL(Unique, kCuda, "T", DType::kInt32);

MILLRACE_OP(UniqueV2)
    .Input("x: T")
    .Input("axis: Taxis")
    .Output("y: T")
    .Output("idx: out_idx")
    .Attr("T: type")
    .Attr("Taxis: {int32, int64} = int64")
    .Attr("out_idx: {int32, int64} = int32")
    .Shape(UniqueShape)
    .NotDifferentiable()
    .Summary("The distinct slices along an axis.");
MILLRACE_KERNEL(UniqueV2, kCpu, UniqueKernel);

MILLRACE_OP(UniqueWithCounts)
    .Input("x: T")
    .Output("y: T")
    .Output("idx: out_idx")
    .Output("count: out_idx")
    .Attr("T: type")
    .Attr("out_idx: {int32, int64} = int32")
    .Shape(UniqueShape)
    .NotDifferentiable()
    .Summary("The distinct elements of a vector, with counts.");
MILLRACE_KERNEL(UniqueWithCounts, kCpu, UniqueKernel);

MILLRACE_OP(UniqueWithCountsV2)
    .Input("x: T")
    .Input("axis: Taxis")
    .Output("y: T")
    .Output("idx: out_idx")
    .Output("count: out_idx")
    .Attr("T: type")
    .Attr("Taxis: {int32, int64} = int64")
    .Attr("out_idx: {int32, int64} = int32")
    .Shape(UniqueShape)
    .NotDifferentiable()
    .Summary("The distinct slices along an axis, with counts.");
MILLRACE_KERNEL(UniqueWithCountsV2, kCpu, UniqueKernel);

MILLRACE_OP(ListDiff)
    .Input("x: T")
    .Input("y: T")
    .Output("out: T")
    .Output("idx: out_idx")
    .Attr("T: type")
    .Attr("out_idx: {int32, int64} = int32")
    .Shape(ListDiffShape)
    .NotDifferentiable()
    .Summary("The elements of one list that are not in another.");
MILLRACE_KERNEL(ListDiff, kCpu, ListDiffKernel);
MILLRACE_HOST_KERNEL(ListDiff, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
