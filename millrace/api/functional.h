// Functions over the elements of tensors along their first dimension. Gradients can be taken through all of them.
//
//   Output squares = MapFn(scope, [](const Scope& s, const Output& x) { return x * x; }, xs);
//   Output sums = Scan(scope, [](const Scope& s, const Output& sum, const Output& x) { return sum + x; }, xs);
//
// A function is built once, as the body of a loop (control_flow.h), and may capture tensors of the surrounding graph.
#pragma once

#include <functional>
#include <vector>

#include "millrace/api/output.h"

namespace millrace {

struct MapOptions {
  int parallel_iterations = 10;
};
using MapFunction = std::function<std::vector<Output>(const Scope& scope, const std::vector<Output>& elements)>;
// The results of `function` for element i of each of `elements`, stacked. They may have other types and another number
// than the elements, but the shape of a result must be the same for all i.
std::vector<Output> MapFn(const Scope& scope, const MapFunction& function, const std::vector<Output>& elements,
                          const MapOptions& options = {});
Output MapFn(const Scope& scope, const std::function<Output(const Scope& scope, const Output& element)>& function,
             const Output& elements, const MapOptions& options = {});

struct ScanOptions {
  // From the last element to the first; results stay in the order of the elements.
  bool reverse = false;
  int parallel_iterations = 10;
};
using FoldFunction = std::function<std::vector<Output>(const Scope& scope, const std::vector<Output>& accumulated,
                                                       const std::vector<Output>& elements)>;
using FoldOne = std::function<Output(const Scope& scope, const Output& accumulated, const Output& element)>;

// What `function` gives after each element, stacked; its results have the shapes of `start`. Without a start (an empty
// vector or Output) the first elements are the start and the first results.
std::vector<Output> Scan(const Scope& scope, const FoldFunction& function, const std::vector<Output>& elements,
                         const std::vector<Output>& start = {}, const ScanOptions& options = {});
Output Scan(const Scope& scope, const FoldOne& function, const Output& elements, const Output& start = {},
            const ScanOptions& options = {});

struct FoldOptions {
  int parallel_iterations = 10;
};
// What `function` gives after the last element, from the first element on (Foldl) or from the last one on (Foldr).
std::vector<Output> Foldl(const Scope& scope, const FoldFunction& function, const std::vector<Output>& elements,
                          const std::vector<Output>& start = {}, const FoldOptions& options = {});
Output Foldl(const Scope& scope, const FoldOne& function, const Output& elements, const Output& start = {},
             const FoldOptions& options = {});
std::vector<Output> Foldr(const Scope& scope, const FoldFunction& function, const std::vector<Output>& elements,
                          const std::vector<Output>& start = {}, const FoldOptions& options = {});
Output Foldr(const Scope& scope, const FoldOne& function, const Output& elements, const Output& start = {},
             const FoldOptions& options = {});

}  // namespace millrace
