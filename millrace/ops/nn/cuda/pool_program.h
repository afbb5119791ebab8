// The text of a GPU's pools.
#pragma once

#include <string>

#include "millrace/ops/nn/pooling.h"

namespace millrace {

struct PoolProgram {
  DType dtype = DType::kFloat;
  bool averages = false;  // AvgPool's kernels, else MaxPool's

  // The kernels in the text. Arguments: the number of elements of the result, the PoolGeometry, and addresses: of the
  // input, and the result; the pixels in place of it (int, as the output has elements); pixels, dy, dx; x, the gradient
  // of dx, and its gradient; dy, dx.
  static constexpr char kMax[] = "millrace_max_pool";
  static constexpr char kMaxPixels[] = "millrace_max_pool_pixels";
  static constexpr char kMaxBack[] = "millrace_max_pool_back";
  static constexpr char kMaxBackBack[] = "millrace_max_pool_back_back";
  static constexpr char kAvg[] = "millrace_avg_pool";
  static constexpr char kAvgBack[] = "millrace_avg_pool_back";

  // C++ for NVRTC, complete but for options: what all such texts begin with, and the kernels.
  std::string Text() const;
  static std::string Headers();
  std::string Kernels(const std::string& suffix = "") const;
};

}  // namespace millrace
