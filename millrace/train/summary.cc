#include "millrace/train/summary.h"

#include "absl/strings/ascii.h"
#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"
#include "millrace/proto/summary.pb.h"

namespace millrace {
namespace {

std::string NodeName(absl::string_view name) {
  std::string clean(name);
  for (char& c : clean) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.' && c != '-' && c != '/' &&
        c != '\\')
      c = '_';
  }
  while (!clean.empty() && !absl::ascii_isalnum(static_cast<unsigned char>(clean.front())) && clean.front() != '.')
    clean.erase(0, 1);
  return clean;
}

// Reserves the name and creates the op, with the name as its tag.
template <typename Make>
Output Summarise(const Scope& scope, absl::string_view name, const Make& make) {
  if (!scope.ok()) return Output(scope, Endpoint{});
  const std::string clean = NodeName(name);
  if (clean.empty()) {
    scope.UpdateStatus(
        InvalidArgument("'", name, "' in scope '", scope.prefix(), "' is not a valid name for a summary"));
    return Output(scope, Endpoint{});
  }
  const Scope plain = scope.WithoutOpName();
  const std::string tag = api_internal::TakeName(plain, clean);
  const Output summary = make(api_internal::WithTakenName(plain, tag), tag);
  AddSummaryOp(summary);
  return summary;
}

}  // namespace

Output ScalarSummary(const Scope& scope, absl::string_view name, const Input& value) {
  return Summarise(scope, name, [&](const Scope& s, const std::string& tag) {
    return Op(s, "ScalarSummary", {tag, value});
  });
}

Output HistogramSummary(const Scope& scope, absl::string_view name, const Input& values) {
  return Summarise(scope, name, [&](const Scope& s, const std::string& tag) {
    return Op(s, "HistogramSummary", {tag, values});
  });
}

Output ImageSummary(const Scope& scope, absl::string_view name, const Input& images,
                    const ImageSummaryOptions& options) {
  return Summarise(scope, name, [&](const Scope& s, const std::string& tag) {
    return Op(s, "ImageSummary", {tag, images},
              {{"max_images", options.max_images}, {"bad_color", Tensor::Of<uint8_t>({255, 0, 0, 255})}});
  });
}

Output AudioSummary(const Scope& scope, absl::string_view name, const Input& sounds, const Input& sample_rate,
                    const AudioSummaryOptions& options) {
  return Summarise(scope, name, [&](const Scope& s, const std::string& tag) {
    return Op(s, "AudioSummaryV2", {tag, sounds, sample_rate}, {{"max_outputs", options.max_outputs}});
  });
}

Output TextSummary(const Scope& scope, absl::string_view name, const Input& text) {
  return Summarise(scope, name, [&](const Scope& s, const std::string& tag) {
    ::tensorflow::SummaryMetadata metadata;
    metadata.mutable_plugin_data()->set_plugin_name("text");
    return Op(s, "TensorSummaryV2", {tag, text, metadata.SerializeAsString()});
  });
}

void AddSummaryOp(const Output& summary) {
  if (!summary.empty()) api_internal::StateOf(summary.scope()).summaries.push_back(summary.endpoint());
}

std::vector<Output> SummaryOps(const Scope& scope) {
  std::vector<Output> all;
  for (const Endpoint& summary : api_internal::StateOf(scope).summaries)
    all.emplace_back(scope.WithoutOpName(), summary);
  return all;
}

Output MergeAllSummaries(const Scope& scope) {
  const std::vector<Output> all = SummaryOps(scope);
  if (all.empty()) return Output(scope, Endpoint{});
  return Op(scope.op_name().empty() ? scope.WithOpName("Merge/MergeSummary") : scope, "MergeSummary", {InputList(all)});
}

}  // namespace millrace
