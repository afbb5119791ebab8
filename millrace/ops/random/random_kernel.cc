#include "millrace/ops/random/random_kernel.h"

#include "millrace/ops/array/int_list.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace::random {
namespace {

// Groups of outputs in one piece of a parallel fill.
constexpr int64_t kGrain = 2048;

// Groups of numbers drawn at once.
constexpr int64_t kBlock = 64;

// Calls make(group, to) for the groups [begin, end) of n outputs, the last one perhaps in part.
template <typename T, int kPerGroup, typename Make>
void ForGroups(T* data, int64_t n, int64_t begin, int64_t end, const Make& make) {
  const int64_t whole = std::min(end, n / kPerGroup);
  for (int64_t group = begin; group < whole; ++group) make(group, data + group * kPerGroup);
  for (int64_t group = std::max(begin, whole); group < end; ++group) {
    T last[kPerGroup];
    make(group, last);
    std::copy(last, last + (n - group * kPerGroup), data + group * kPerGroup);
  }
}

template <typename T, typename Dist>
void FillWith(KernelContext& ctx, const Philox& stream, const Dist& distribution, Tensor* out) {
  constexpr int kPerGroup = Dist::kPerGroup;
  T* const data = out->data<T>();
  const int64_t n = out->num_elements();
  const int64_t groups = (n + kPerGroup - 1) / kPerGroup;
  ctx.ParallelFor(groups, kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (Dist::kVariable) {
      ForGroups<T, kPerGroup>(data, n, begin, end,
                              [&](int64_t group, T* to) { DrawGroup(distribution, stream, group, to); });
    } else {
      Philox position = stream;
      position.Skip(static_cast<uint64_t>(begin));
      uint32_t numbers[kBlock * kNumbersPerGroup];
      for (int64_t from = begin; from < end; from += kBlock) {
        const int64_t to = std::min(from + kBlock, end);
        position.Fill(numbers, to - from);
        ForGroups<T, kPerGroup>(data, n, from, to, [&](int64_t group, T* place) {
          distribution(numbers + (group - from) * kNumbersPerGroup, place);
        });
      }
    }
  });
}

template <typename T, template <typename> class Dist>
void FillPlain(KernelContext& ctx, const Philox& stream, RandomKernel::Range, Tensor* out) {
  FillWith<T>(ctx, stream, Dist<T>(), out);
}

template <typename T>
void FillRange(KernelContext& ctx, const Philox& stream, RandomKernel::Range range, Tensor* out) {
  using U = std::make_unsigned_t<T>;
  FillWith<T>(ctx, stream, UniformInt<T>{.low = static_cast<U>(range.low), .range = static_cast<U>(range.size)}, out);
}

template <template <typename> class Dist, typename List>
RandomKernel::Fill FindPlain(List types, DType dtype) {
  RandomKernel::Fill fill = nullptr;
  DispatchType(types, dtype, [&](auto tag) { fill = &FillPlain<typename decltype(tag)::type, Dist>; });
  return fill;
}

using FullIntTypes = Types<int32_t, int64_t, uint32_t, uint64_t>;

}  // namespace

RandomKernel::Fill FindFill(Distribution distribution, DType dtype) {
  switch (distribution) {
    case Distribution::kUniform:
      return FindPlain<Uniform>(FloatTypes{}, dtype);
    case Distribution::kNormal:
      return FindPlain<Normal>(FloatTypes{}, dtype);
    case Distribution::kTruncatedNormal:
      return FindPlain<TruncatedNormal>(FloatTypes{}, dtype);
    case Distribution::kFullInt:
      return FindPlain<FullInt>(FullIntTypes{}, dtype);
    case Distribution::kUniformInt:
      break;
  }
  RandomKernel::Fill fill = nullptr;
  DispatchType(FullIntTypes{}, dtype, [&](auto tag) { fill = &FillRange<typename decltype(tag)::type>; });
  return fill;
}

RandomKernel::RandomKernel(KernelInit& init, SourceKind source, Distribution distribution)
    : source_(init, source), has_range_(distribution == Distribution::kUniformInt) {
  fill_ = FindFill(distribution, init.output_type(0));
  if (fill_ == nullptr) FailDType(init, init.output_type(0));
}

StatusOr<RandomKernel::Range> RandomKernel::ReadRange(const KernelContext& ctx, int input) const {
  const Tensor& min = ctx.input(input);
  const Tensor& max = ctx.input(input + 1);
  if (min.rank() != 0 || max.rank() != 0) {
    return InvalidArgument("minval and maxval must be scalars, but have the shapes ", min.shape().ToString(), " and ",
                           max.shape().ToString());
  }
  StatusOr<Range> range = Internal("integers of an unknown type");
  DispatchType(FullIntTypes{}, min.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T low = min.scalar<T>(), end = max.scalar<T>();
    if (low >= end) {
      range = InvalidArgument("Need minval < maxval, got ", low, " >= ", end);
      return;
    }
    const uint64_t low_bits = static_cast<uint64_t>(low);
    range = Range{.low = low_bits, .size = static_cast<uint64_t>(end) - low_bits};
  });
  return range;
}

Status RandomKernel::Compute(KernelContext& ctx) {
  MR_ASSIGN_OR_RETURN(const IntList dims, ReadIntVector(ctx.input(0), "shape"));
  MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateDeviceOutput(0, shape));
  const int64_t n = output->num_elements();
  if (n == 0) return absl::OkStatus();
  Range range;
  if (has_range_) {
    MR_ASSIGN_OR_RETURN(range, ReadRange(ctx, 1 + source_.num_inputs()));
  }
  MR_ASSIGN_OR_RETURN(const Philox stream, source_.Take(ctx, 1, static_cast<uint64_t>(n) * kGroupsPerOutput));
  return FillOutput(ctx, stream, range, output);
}

Status RandomKernel::FillOutput(KernelContext& ctx, const Philox& stream, Range range, Tensor* out) const {
  fill_(ctx, stream, range, out);
  return absl::OkStatus();
}

Status RandomShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(0));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

}  // namespace millrace::random
