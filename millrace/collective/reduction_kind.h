// The ways in which the elements of several ranks become one.
#pragma once

#include <cstdint>

namespace millrace::collective {

enum class Reduction : uint8_t { kSum, kMean, kMin, kMax, kProduct };

}  // namespace millrace::collective
