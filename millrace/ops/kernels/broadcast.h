// Iteration over operands of different shapes, by NumPy's broadcasting rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "absl/container/inlined_vector.h"
#include "millrace/base/status.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// The common shape of up to three operands, and the iteration over their elements. Adjacent dimensions along which the
// same operands advance are merged, so that the innermost run is as long as possible and no code depends on the rank.
class Broadcast {
 public:
  static constexpr int kMaxOperands = 3;

  // INVALID_ARGUMENT, naming the shapes, if they are incompatible.
  Status Init(std::initializer_list<const Shape*> operands);

  const Shape& shape() const { return shape_; }
  int64_t num_elements() const { return num_elements_; }
  // Along a run, an operand advances by one element per step or is constant.
  bool moves(int operand) const { return runs_.back().step[operand] != 0; }

  // Calls fn(offsets, begin, n) for consecutive runs that cover output elements [begin, end): n output elements from
  // `begin` correspond to operand k's elements from offsets[k].
  template <typename Fn>
  void ForEachRun(int64_t begin, int64_t end, Fn&& fn) const {
    const int last = static_cast<int>(runs_.size()) - 1;
    absl::InlinedVector<int64_t, 8> at(runs_.size());
    int64_t offsets[kMaxOperands] = {};
    int64_t rest = begin;
    for (int d = last; d >= 0; --d) {
      at[d] = rest % runs_[d].size;
      rest /= runs_[d].size;
      for (int k = 0; k < kMaxOperands; ++k) offsets[k] += at[d] * runs_[d].step[k];
    }
    while (begin < end) {
      const int64_t n = std::min(runs_[last].size - at[last], end - begin);
      fn(static_cast<const int64_t*>(offsets), begin, n);
      begin += n;
      Advance(last, n, at.data(), offsets);
    }
  }

 private:
  // One merged dimension: its size, and the stride of each operand.
  struct Run {
    int64_t size;
    int64_t step[kMaxOperands];
  };

  void Advance(int d, int64_t n, int64_t* at, int64_t* offsets) const {
    while (true) {
      at[d] += n;
      for (int k = 0; k < kMaxOperands; ++k) offsets[k] += n * runs_[d].step[k];
      if (at[d] < runs_[d].size || d == 0) return;
      for (int k = 0; k < kMaxOperands; ++k) offsets[k] -= at[d] * runs_[d].step[k];
      at[d] = 0;
      --d;
      n = 1;
    }
  }

  Shape shape_;
  int64_t num_elements_ = 0;
  absl::InlinedVector<Run, 4> runs_;
};

// "Incompatible shapes: [2,3] vs. [4]".
Status IncompatibleShapes(const Shape& a, const Shape& b);

}  // namespace millrace
