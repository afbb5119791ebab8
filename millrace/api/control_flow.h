// Conditionals and loops. Gradients can be taken through all of them.
//
//   Output y = Cond(root, x > 0.0f,
//       [&](const Scope& s) { return x * 2.0f; },
//       [&](const Scope& s) { return ops::Exp(s, x); });
//
//   std::vector<Output> r = While(root, {i, h},
//       [](const Scope& s, const std::vector<Output>& v) { return v[0] < 10; },
//       [&](const Scope& s, const std::vector<Output>& v) {
//         return std::vector<Output>{v[0] + 1, ops::Tanh(s, ops::MatMul(s, v[1], w))};
//       });
//
// A branch or body is built once, in the scope that is passed to it, and may capture tensors of the surrounding graph.
// It becomes a function in the graph's library.
#pragma once

#include <functional>
#include <vector>

#include "millrace/api/function.h"

namespace millrace {

using Branch = std::function<std::vector<Output>(const Scope& scope)>;

// The results of `then` or `otherwise`, which must have the same types. Only the branch that is taken runs. Truth is as
// in Python: `predicate` is true if it is a non-zero number or a non-empty string.
std::vector<Output> Cond(const Scope& scope, const Output& predicate, const Branch& then, const Branch& otherwise);
// The same for a single result.
Output Cond(const Scope& scope, const Output& predicate, const std::function<Output(const Scope&)>& then,
            const std::function<Output(const Scope&)>& otherwise);

// The results of branch `index` (int32), or of the last branch if `index` is out of range.
std::vector<Output> Case(const Scope& scope, const Output& index, const std::vector<Branch>& branches);

struct WhileOptions {
  // The number of iterations that may run in parallel.
  int parallel_iterations = 10;
  // Ends the loop after this many iterations; -1 means no limit.
  int64_t maximum_iterations = -1;
};

using LoopCondition = std::function<Output(const Scope& scope, const std::vector<Output>& variables)>;

// Runs `body` on the loop variables, initially `start`, while `condition` is true, and returns their final values. The
// body's results must have the types of the variables; shapes may change between iterations.
std::vector<Output> While(const Scope& scope, const std::vector<Output>& start, const LoopCondition& condition,
                          const Function::Body& body, const WhileOptions& options = {});

}  // namespace millrace
