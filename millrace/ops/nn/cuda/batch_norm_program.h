// The text of a GPU's batch normalisation.
#pragma once

#include <string>

#include "millrace/ops/nn/channel_blocks.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

struct BatchNormProgram {
  DType dtype = DType::kFloat;  // of x, y and their gradients; all else is float

  // The kernels in the text, and what they are given. Sums over columns also get their Columns first
  // (ops/nn/cuda/column_plan.h), and the others the number of their elements.
  static constexpr char kMoments[] = "millrace_batch_moments";        // ChannelBlocks, x, pieces
  static constexpr char kSettle[] = "millrace_settle_moments";        // Vectors, pieces
  static constexpr char kGiven[] = "millrace_given_moments";          // Vectors; an element is a channel
  static constexpr char kNormalise[] = "millrace_normalise";          // ChannelBlocks, x, mean, factor, offset, y
  static constexpr char kSums[] = "millrace_gradient_sums";           // ChannelBlocks, dy, x, mean, pieces
  static constexpr char kSettleSums[] = "millrace_settle_gradients";  // Gradients, pieces
  static constexpr char kGradient[] = "millrace_gradient_of_input";   // ChannelBlocks, dy, x, mean, Gradients, dx

  // The sizes of pieces.
  static constexpr int64_t kMomentsSize = 3 * sizeof(float), kSumsSize = 2 * sizeof(float);

  // As the text has them.
  struct Vectors {
    const void *scale = nullptr, *mean = nullptr, *variance = nullptr;
    void* results[4] = {};
    void* factor = nullptr;
    float epsilon = 0, average = 1;
  };
  struct Gradients {
    const void *scale = nullptr, *variance = nullptr;
    void *dscale = nullptr, *doffset = nullptr, *slope = nullptr, *shift = nullptr, *tilt = nullptr;
    float epsilon = 0, count = 0;
  };

  // C++ for NVRTC, complete but for options: what all such texts begin with, and the kernels.
  std::string Text() const;
  static std::string Headers();
  std::string Kernels(const std::string& suffix = "") const;
};

}  // namespace millrace
