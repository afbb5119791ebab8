#include "millrace/ops/kernels/broadcast.h"

namespace millrace {

Status IncompatibleShapes(const Shape& a, const Shape& b) {
  return InvalidArgument("Incompatible shapes: ", a.ToString(), " vs. ", b.ToString());
}

Status Broadcast::Init(std::initializer_list<const Shape*> operands) {
  const Shape* const* const shapes = operands.begin();
  const int count = static_cast<int>(operands.size());
  int rank = 0;
  for (int k = 0; k < count; ++k) rank = std::max(rank, shapes[k]->rank());

  // From the innermost dimension outwards; `runs_` is reversed at the end.
  Shape::Dims dims(rank);
  runs_.clear();
  int64_t stride[kMaxOperands];
  std::fill_n(stride, kMaxOperands, 1);
  unsigned last_moving = 0;
  bool overflow = false;
  num_elements_ = 1;
  for (int d = rank - 1; d >= 0; --d) {
    int64_t size = 1;
    int64_t dim[kMaxOperands] = {1, 1, 1};
    for (int k = 0; k < count; ++k) {
      const int at = d - (rank - shapes[k]->rank());
      if (at >= 0) dim[k] = shapes[k]->dim(at);
      if (dim[k] == 1) continue;
      if (size != 1 && size != dim[k]) {
        return IncompatibleShapes(*shapes[0], count == 3 && k == 2 ? *shapes[2] : *shapes[1]);
      }
      size = dim[k];
    }
    dims[d] = size;
    overflow |= __builtin_mul_overflow(num_elements_, size, &num_elements_);
    if (size == 1) continue;
    unsigned moving = 0;
    for (int k = 0; k < count; ++k) moving |= dim[k] == size ? 1u << k : 0;
    if (!runs_.empty() && moving == last_moving) {
      runs_.back().size *= size;
    } else {
      Run run{size, {}};
      for (int k = 0; k < count; ++k) run.step[k] = (moving >> k & 1) != 0 ? stride[k] : 0;
      runs_.push_back(run);
    }
    last_moving = moving;
    for (int k = 0; k < count; ++k) stride[k] *= dim[k];
  }
  if (overflow && num_elements_ != 0) {
    return InvalidArgument("Incompatible shapes: ", shapes[0]->ToString(), " vs. ", shapes[1]->ToString(),
                           ": together they have too many elements");
  }
  if (runs_.empty()) runs_.push_back(Run{1, {1, 1, 1}});
  std::reverse(runs_.begin(), runs_.end());
  shape_ = Shape(absl::MakeConstSpan(dims));
  return absl::OkStatus();
}

}  // namespace millrace
