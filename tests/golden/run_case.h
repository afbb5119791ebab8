// Runs one case and reports the outcome.
#pragma once

#include <string>
#include <vector>

#include "millrace/session/session.h"
#include "tests/golden/case.h"
#include "tests/golden/places.h"

namespace millrace::golden {

struct Outcome {
  enum Kind {
    kPassed,
    kNeedsOp,  // the case uses ops that the library does not have
    kFailed,
    kNotMeant,  // the case is not meant for this kind of check
  };
  Kind kind = kPassed;
  std::string why;                 // of a failure
  std::vector<std::string> needs;  // the missing ops

  static Outcome Failed(absl::string_view why) { return {kFailed, std::string(why), {}}; }
  static Outcome From(const Status& status) { return status.ok() ? Outcome{} : Failed(status.ToString()); }
};

// Runs the steps of `c` in one fresh session with state of its own and compares every fetch. With `places`, each step
// is traced, and a node that is not where it should be is a failure.
Outcome RunCase(const CaseFolder& folder, const Case& c, const SessionOptions& options, Places* places = nullptr);

// Differentiates the graph of `c` and compares with TensorFlow's gradients; `places` as in RunCase.
Outcome RunGradientCase(const CaseFolder& folder, const Case& c, const SessionOptions& options,
                        Places* places = nullptr);

// Differentiates the graph of `c` and compares with finite differences, so no expected results are needed. Meant for
// cases with xs of type float or double.
Outcome CheckFiniteDifferences(const CaseFolder& folder, const Case& c, const SessionOptions& options);

// The feeds of a request as tensors.
StatusOr<std::vector<Feed>> FeedsOf(const pb::RunStepRequest& request);

// Runs a step with a limit on its time, so that a case that hangs is a failure. With `places`, it is traced, and must
// be a step of `graph`.
Status RunBounded(Session& session, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                  absl::Span<const std::string> targets, std::vector<Tensor>* results, const Graph* graph = nullptr,
                  Places* places = nullptr);

}  // namespace millrace::golden
