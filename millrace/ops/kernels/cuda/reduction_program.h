// The text of a GPU's reductions: elements combined by a functor of ops/kernels/functors.h along some dimensions.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "millrace/ops/kernels/reduce.h"

namespace millrace {

struct ReductionProgram {
  std::string combine;       // "AddFn"
  std::string identity;      // "Acc(0)": of accumulators, which are elements widened
  std::string load = "x";    // of a widened element x
  std::string finish = "a";  // of an accumulator a of `count` elements

  // The kernels in the text: from elements to results; from elements to the accumulators of pieces; from these to
  // results. Arguments: the Reduction; in the last, how many elements there were; the addresses of elements or
  // accumulators and of what is made of them.
  static constexpr char kWhole[] = "millrace_reduce";
  static constexpr char kPieces[] = "millrace_reduce_pieces";
  static constexpr char kJoin[] = "millrace_join_pieces";

  // C++ for NVRTC, complete but for options.
  std::string Text(DType dtype) const;
  // What such texts begin with, and the kernels, their names followed by `suffix`.
  static std::string Headers();
  std::string Kernels(DType dtype, const std::string& suffix = "") const;
};

// How a reduction is launched. It follows from the sizes alone, and so does the order in which elements are combined.
struct ReductionPlan {
  // As the text of programs has it.
  struct Reduction {
    static constexpr int kMostDims = 12;
    int64_t outputs = 1, count = 1, step = 1;
    int kept_rank = 0, reduced_rank = 0;
    int by_columns = 0;
    int64_t kept_size[kMostDims], kept_stride[kMostDims];
    int64_t reduced_size[kMostDims], reduced_stride[kMostDims];

    void Keep(int64_t size, int64_t stride);
    void Reduce(int64_t size, int64_t stride);
  };
  struct Launch {
    Reduction reduction;
    unsigned threads[2] = {1, 1};
    unsigned blocks[2] = {1, 1};
  };

  // UNIMPLEMENTED for too many dimensions.
  static StatusOr<ReductionPlan> Of(absl::Span<const ReduceAxes::Run> runs);
  int64_t pieces() const { return first.blocks[1]; }

  Launch first;  // kWhole, or with several pieces kPieces
  Launch join;   // kJoin
};

}  // namespace millrace
