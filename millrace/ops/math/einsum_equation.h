// Einsum equations, such as "ab,bc->ac".
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// One dimension of an operand: a letter, or a dimension covered by "..." (kEllipsis and above, counted from the last).
using EinsumLabel = int;
using EinsumLabels = std::vector<EinsumLabel>;
inline constexpr EinsumLabel kEllipsis = 256;

struct EinsumEquation {
  std::vector<std::string> inputs;  // subscripts without blanks
  std::string output;

  // INVALID_ARGUMENT, naming the problem: no arrow, an invalid character, more than one "...", the wrong number of
  // inputs.
  static StatusOr<EinsumEquation> Parse(absl::string_view text, int num_inputs);
};

// An equation applied to inputs of given ranks.
struct EinsumDims {
  std::vector<EinsumLabels> inputs;
  EinsumLabels output;
  // Sizes by label, -1 where unknown.
  std::map<EinsumLabel, int64_t> sizes;

  // All ranks must be known. INVALID_ARGUMENT if a rank or size does not match.
  static StatusOr<EinsumDims> Make(const EinsumEquation& equation, const std::vector<PartialShape>& shapes);

  // Of known sizes: the product of those of some labels, and the output's shape.
  int64_t Count(const EinsumLabels& labels) const;
  StatusOr<Shape> OutputShape() const;
};

}  // namespace millrace
