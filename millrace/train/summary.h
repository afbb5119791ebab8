// Summaries: what a training shows of itself in TensorBoard.
//
//   ScalarSummary(scope, "loss", loss);
//   Output all = MergeAllSummaries(scope);         // run it now and then, and give what it returns to a FileWriter
#pragma once

#include <string>
#include <vector>

#include "millrace/api/input.h"

namespace millrace {

// Each adds an op that gives the bytes of a Summary, and puts it among the graph's summaries. The tag is the op's full name: `name` within the scope, made
// unique, with what node names may not have replaced by "_".
Output ScalarSummary(const Scope& scope, absl::string_view name, const Input& value);
// Of all elements; a step in which one is not finite fails.
Output HistogramSummary(const Scope& scope, absl::string_view name, const Input& values);
struct ImageSummaryOptions {
  int64_t max_images = 3;
};
// A batch of pictures, [n, height, width, 1, 3 or 4], bytes or numbers (scaled).
Output ImageSummary(const Scope& scope, absl::string_view name, const Input& images, const ImageSummaryOptions& options = {});
// Markdown; a scalar, a list or a table of strings.
Output TextSummary(const Scope& scope, absl::string_view name, const Input& text);

// For a summary made in another way.
void AddSummaryOp(const Output& summary);
std::vector<Output> SummaryOps(const Scope& scope);
// One op for all summaries so far; an empty Output when there is none.
Output MergeAllSummaries(const Scope& scope);

}  // namespace millrace
