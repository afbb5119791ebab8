// Choosing the best of overlapping boxes.
#pragma once

#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace millrace {

struct SuppressionOptions {
  int64_t max_boxes = 0;
  float overlap_threshold = 0.5f;
  float score_threshold = std::numeric_limits<float>::lowest();
  float soft_sigma = 0;  // above 0: overlapping boxes lose score in place of being dropped
};

struct ChosenBoxes {
  std::vector<int32_t> indices;
  std::vector<float> scores;
};

// By falling score, of equal ones the first; `overlap(i, j)` of two boxes.
ChosenBoxes SuppressNonMax(absl::Span<const float> scores, const SuppressionOptions& options,
                           absl::FunctionRef<float(int64_t, int64_t)> overlap);

// Intersection over union of two boxes of corners y1, x1, y2, x2 in any order; 0 for an empty box.
float IntersectionOverUnion(const float* a, const float* b);

}  // namespace millrace
