// Feeds, fetches and targets of a step, by name.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/tensor/tensor.h"

namespace millrace {

// The signature of a callable: the names of its feeds and fetches, in the order of its arguments and results, and of
// its targets. A tensor is named "node:output", or "node" for output 0; a target by its node.
struct CallableSpec {
  std::vector<std::string> feeds = {};
  std::vector<std::string> fetches = {};
  std::vector<std::string> targets = {};
};

// A tensor's name ("x", "x:0") with its value.
using Feed = std::pair<std::string, Tensor>;

}  // namespace millrace
