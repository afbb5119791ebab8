// Rows of a variable combined by segments: what the pass row_sums makes of Unique, a gather and a SparseSegment op.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/math/segment.h"
#include "millrace/ops/sparse/sparse_segment.h"
#include "millrace/ops/state/slice_addresses.h"
#include "millrace/ops/state/striped_rows.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The error that the gather of the distinct indices would give.
template <typename Index>
Status CheckRowIndices(const Index* indices, int64_t n, int64_t rows) {
  bool bad = false;
  for (int64_t i = 0; i < n; ++i) bad |= indices[i] < 0 || indices[i] >= rows;
  if (!bad) return absl::OkStatus();
  absl::flat_hash_set<Index> distinct;
  int64_t i = 0;
  for (; indices[i] >= 0 && indices[i] < rows; ++i) distinct.insert(indices[i]);
  return InvalidArgument("indices[", distinct.size(), "] = ", indices[i], " is not in [0, ", rows, ")");
}

// sum = 0 + row, or sum + row. Zero is added, as SparseSegmentSum does, so that -0 becomes 0.
template <typename T, typename C>
void AddRow(const T* __restrict row, int64_t width, bool first, C* __restrict sum) {
  if (first) {
    for (int64_t j = 0; j < width; ++j) sum[j] = C(0) + static_cast<C>(row[j]);
  } else {
    for (int64_t j = 0; j < width; ++j) sum[j] += static_cast<C>(row[j]);
  }
}

struct CombineInputs {
  const Tensor& params;
  RowLocks& locks;
  const Tensor& indices;
  const Tensor& segment_ids;
  int64_t width;
};

// Writes all rows of `output`. Segments do not depend on each other, so the result does not depend on the number of
// threads.
template <typename T, typename Index, typename Id>
void CombineRows(KernelContext& ctx, const CombineInputs& in, SegmentScale scale, Tensor* output) {
  using C = ComputeType<T>;
  constexpr bool kInPlace = std::is_same_v<T, C>;
  constexpr int64_t kGrainElements = 16384, kLine = 64 / sizeof(T), kMostLines = 8;
  const int64_t n = in.indices.num_elements(), width = in.width;
  const Index* const index = in.indices.data<Index>();
  const Id* const id = in.segment_ids.data<Id>();
  const T* const data = in.params.raw<T>();
  T* const out = output->data<T>();
  if (width == 0) return;
  const StripeFinder stripes{RowLayout(in.params)};
  ctx.ParallelFor(n, std::max<int64_t>(1, kGrainElements / width), [&](int64_t begin, int64_t end) {
    // A segment belongs to the range with its first entry, as do the empty segments before it.
    while (begin > 0 && begin < end && id[begin] == id[begin - 1]) ++begin;
    std::vector<C> wide(kInPlace ? 0 : width);
    StripeHold hold(&in.locks);
    for (int64_t first = begin, last; first < end; first = last) {
      const int64_t before = first == 0 ? -1 : static_cast<int64_t>(id[first - 1]), segment = id[first];
      std::fill(out + (before + 1) * width, out + segment * width, T(0));
      T* const row = out + segment * width;
      C* sum;
      if constexpr (kInPlace) {
        sum = row;
      } else {
        sum = wide.data();
      }
      for (last = first; last < n && id[last] == id[first]; ++last) {
        if (last + kPrefetchSlices < n) {
          const T* const ahead = data + static_cast<int64_t>(index[last + kPrefetchSlices]) * width;
          for (int64_t j = 0; j < std::min(width, kMostLines * kLine); j += kLine) __builtin_prefetch(ahead + j);
        }
        const int64_t from = static_cast<int64_t>(index[last]) * width;
        hold.MoveTo(stripes.StripeOf(from));
        AddRow(data + from, width, last == first, sum);
      }
      const double factor = last - first == 1 ? 1.0 : SegmentFactor(scale, last - first);
      if (kInPlace && factor == 1.0) continue;
      for (int64_t j = 0; j < width; ++j) {
        row[j] = factor == 1.0 ? static_cast<T>(sum[j]) : static_cast<T>(sum[j] * static_cast<C>(factor));
      }
    }
  });
  const int64_t used = n == 0 ? 0 : static_cast<int64_t>(id[n - 1]) + 1;
  std::fill(out + used * width, out + output->num_elements(), T(0));
}

using CombineFn = decltype(&CombineRows<float, int32_t, int32_t>);
template <typename T>
CombineFn CombineFor(DType index, DType id) {
  const bool wide_id = id == DType::kInt64;
  if (index == DType::kInt64) return wide_id ? &CombineRows<T, int64_t, int64_t> : &CombineRows<T, int64_t, int32_t>;
  return wide_id ? &CombineRows<T, int32_t, int64_t> : &CombineRows<T, int32_t, int32_t>;
}

// Fails as the ops in whose place it is, with the same words, in the same order.
class CombineRowsKernel : public Kernel {
 public:
  explicit CombineRowsKernel(KernelInit& init) : dtype_(init.output_type(0)) {
    std::string combiner;
    init.Attr("combiner", &combiner);
    scale_ = combiner == "mean" ? SegmentScale::kMean : combiner == "sqrtn" ? SegmentScale::kSqrtN : SegmentScale::kSum;
    const bool known = DispatchType(FloatTypes(), dtype_, [&](auto tag) {
      combine_ = CombineFor<typename decltype(tag)::type>(init.input_type(1), init.input_type(2));
    });
    if (!known) FailDType(init, dtype_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& indices = ctx.input(1);
    if (indices.rank() != 1)
      return InvalidArgument("unique expects a 1D vector, got shape ", indices.shape().ToString());
    return ReadVariableRows(ctx, 0, dtype_, [&](const Tensor& params, RowLocks& locks) -> Status {
      MR_ASSIGN_OR_RETURN(const SliceForm form, RowSlices(params.shape(), indices));
      MR_RETURN_IF_ERROR(indices.dtype() == DType::kInt32
                             ? CheckRowIndices(indices.data<int32_t>(), form.count, form.rows)
                             : CheckRowIndices(indices.data<int64_t>(), form.count, form.rows));
      MR_ASSIGN_OR_RETURN(const int64_t count, CountSegments(ctx, params));
      Shape shape = params.shape();
      shape.set_dim(0, count);
      if (const Status fits = Shape::Make(shape.dims()).status(); !fits.ok())
        return WithPrefix(kSegmentsOverflow, fits);
      MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, shape));
      combine_(ctx, {params, locks, indices, ctx.input(2), form.size}, scale_, output);
      return absl::OkStatus();
    });
  }

 private:
  static StatusOr<int64_t> CountSegments(const KernelContext& ctx, const Tensor& params) {
    const Tensor& ids = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckSegmentShapes(params, ctx.input(1), ids, "data"));
    const int64_t n = ids.num_elements();
    MR_RETURN_IF_ERROR(ids.dtype() == DType::kInt32 ? CheckSortedIds(ids.data<int32_t>(), n)
                                                    : CheckSortedIds(ids.data<int64_t>(), n));
    const int64_t count = n == 0 ? 0 : IntAt(ids, n - 1) + 1;
    return ctx.num_inputs() == 4 ? GivenSegments(ctx, 3, count) : count;
  }

  const DType dtype_;
  SegmentScale scale_ = SegmentScale::kSum;
  CombineFn combine_ = nullptr;
};

Status CombinedShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  return SegmentRows(c, VariableShapeOf(c, 0), c.num_inputs() == 4 ? 3 : -1);
}

// Created by the pass row_sums.
MILLRACE_OP(_CombineResourceRows)
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("segment_ids: Tsegmentids")
    .Input("num_segments: N * Tnumsegments")
    .Output("output: dtype")
    .Attr("combiner: {'sum', 'mean', 'sqrtn'}")
    .Attr("dtype: {bfloat16, half, float, double}")
    .Attr("Tindices: {int32, int64}")
    .Attr("Tsegmentids: {int32, int64}")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Attr("N: int >= 0")
    .Stateful()
    .Shape(CombinedShape)
    .NotDifferentiable()
    .Trait(OpTrait::kReadsVariable)
    .Summary("Sums or means of rows of a variable, by sorted segment ids.");
MILLRACE_OP(_CombineVariableRows)
    .Input("ref: Ref(T)")
    .Input("indices: Tindices")
    .Input("segment_ids: Tsegmentids")
    .Input("num_segments: N * Tnumsegments")
    .Output("output: T")
    .Attr("combiner: {'sum', 'mean', 'sqrtn'}")
    .Attr("T: {bfloat16, half, float, double}")
    .Attr("Tindices: {int32, int64}")
    .Attr("Tsegmentids: {int32, int64}")
    .Attr("Tnumsegments: {int32, int64} = int32")
    .Attr("N: int >= 0")
    .Shape(CombinedShape)
    .NotDifferentiable()
    .Summary("Sums or means of rows of a variable, by sorted segment ids.");

MILLRACE_KERNEL(_CombineResourceRows, kCpu, CombineRowsKernel);
MILLRACE_KERNEL(_CombineVariableRows, kCpu, CombineRowsKernel);

}  // namespace
}  // namespace millrace
