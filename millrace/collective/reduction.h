// How the elements of several ranks become one.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/status.h"
#include "millrace/collective/reduction_kind.h"
#include "millrace/net/bytes.h"
#include "millrace/tensor/dtype.h"

namespace millrace::collective {

inline constexpr int kReductions = 5;
absl::string_view ReductionName(Reduction reduction);

// INVALID_ARGUMENT unless elements of the type can be reduced: floating-point and integer types, and complex ones
// except by kMin and kMax. Integers wrap around. half and bfloat16 are computed in float and rounded after each pair.
Status CheckReducible(DType dtype, Reduction reduction);

// out[i] = left[i] (reduction) right[i]; kMean adds. `out` may be `left` or `right`. All are aligned for the type. The
// minimum or maximum with a NaN is NaN.
void Reduce(DType dtype, Reduction reduction, const void* left, const void* right, void* out, int64_t count);

// The last step of kMean: divides by the number of values that were added. Integers are rounded towards zero. A no-op
// for the other reductions.
void FinishReduction(DType dtype, Reduction reduction, void* values, int64_t count, int64_t added);

// A message in one piece, at an address that is aligned for every type. Copies it if it is not so already.
class AlignedMessage {
 public:
  // `message` must outlive this.
  explicit AlignedMessage(const net::Bytes& message);
  const char* data() const { return data_; }

 private:
  std::string copy_;
  const char* data_ = nullptr;
};

}  // namespace millrace::collective
