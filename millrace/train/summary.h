// Summary ops, whose results TensorBoard shows.
//
//   ScalarSummary(scope, "loss", loss);
//   Output all = MergeAllSummaries(scope);         // run it periodically and pass the result to a FileWriter
#pragma once

#include <string>
#include <vector>

#include "millrace/api/input.h"

namespace millrace {

// Each function adds an op that returns a serialized Summary, and adds that op to the graph's summaries. The tag is the
// op's full name: `name` within the scope, made unique, with characters that node names may not contain replaced by
// "_".
Output ScalarSummary(const Scope& scope, absl::string_view name, const Input& value);
// A histogram of all elements. A step fails if an element is not finite.
Output HistogramSummary(const Scope& scope, absl::string_view name, const Input& values);
struct ImageSummaryOptions {
  int64_t max_images = 3;
};
// A batch of images, [n, height, width, channels] with 1, 3 or 4 channels. Integer bytes are shown as they are, floats
// are scaled.
Output ImageSummary(const Scope& scope, absl::string_view name, const Input& images,
                    const ImageSummaryOptions& options = {});
struct AudioSummaryOptions {
  int64_t max_outputs = 3;
};
// Sounds of `sample_rate` samples a second, [n, frames] or [n, frames, channels], with samples from -1 to 1.
Output AudioSummary(const Scope& scope, absl::string_view name, const Input& sounds, const Input& sample_rate,
                    const AudioSummaryOptions& options = {});
// Markdown text: a scalar, a vector or a matrix of strings.
Output TextSummary(const Scope& scope, absl::string_view name, const Input& text);

// Adds a summary op that was made in another way to the graph's summaries.
void AddSummaryOp(const Output& summary);
std::vector<Output> SummaryOps(const Scope& scope);
// One op that merges all summaries so far; an empty Output if there are none.
Output MergeAllSummaries(const Scope& scope);

}  // namespace millrace
