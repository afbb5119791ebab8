// Conditionals and loops. Gradients flow through all of them.
//
//   Output y = Cond(root, x > 0.0f, [&](const Scope& s) { return x * 2.0f; }, [&](const Scope& s) { return ops::Exp(s, x); });
//
//   std::vector<Output> r = While(root, {i, h},
//       [](const Scope& s, const std::vector<Output>& v) { return v[0] < 10; },
//       [&](const Scope& s, const std::vector<Output>& v) {
//         return std::vector<Output>{v[0] + 1, ops::Tanh(s, ops::MatMul(s, v[1], w))};
//       });
//
// A branch or body is built once, into the scope that it is given, and may use any tensor from around it. It
// becomes a function of the graph's library.
#pragma once

#include <functional>
#include <vector>

#include "millrace/api/function.h"

namespace millrace {

using Branch = std::function<std::vector<Output>(const Scope& scope)>;

// The results of `then` or of `otherwise`, which have the same types. Only the one that is taken runs. `predicate` is
// true as in Python: a number that is not zero, text that is not empty.
std::vector<Output> Cond(const Scope& scope, const Output& predicate, const Branch& then, const Branch& otherwise);
// With one result.
Output Cond(const Scope& scope, const Output& predicate, const std::function<Output(const Scope&)>& then,
            const std::function<Output(const Scope&)>& otherwise);

// The results of branch `index` (int32), of the last one when there is no such branch.
std::vector<Output> Case(const Scope& scope, const Output& index, const std::vector<Branch>& branches);

struct WhileOptions {
  // How many iterations may be at work at once.
  int parallel_iterations = 10;
  // Ends the loop after so many iterations; -1: only the condition does.
  int64_t maximum_iterations = -1;
};

using LoopCondition = std::function<Output(const Scope& scope, const std::vector<Output>& variables)>;

// Runs `body` on its own results, starting with `start`, as long as `condition` holds, and gives the last ones. What the
// body gives has the types of the variables; shapes may change from iteration to iteration.
std::vector<Output> While(const Scope& scope, const std::vector<Output>& start, const LoopCondition& condition,
                          const Function::Body& body, const WhileOptions& options = {});

}  // namespace millrace
