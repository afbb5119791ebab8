#include "millrace/session/base_session.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

std::string WholeName(const std::string& name) {
  return absl::StrContains(name, ':') ? name : absl::StrCat(name, ":0");
}

std::vector<std::string> WholeNames(absl::Span<const std::string> names) {
  std::vector<std::string> whole;
  whole.reserve(names.size());
  for (const std::string& name : names) whole.push_back(WholeName(name));
  return whole;
}

}  // namespace

absl::Duration BaseSession::TimeoutOf(const RunOptions& options) const {
  return options.timeout == absl::InfiniteDuration() ? options_.operation_timeout : options.timeout;
}

Status BaseSession::InTurn(absl::FunctionRef<Status()> body) {
  {
    MutexLock lock(&mu_);
    while (in_turn_) turn_ended_.Wait(&mu_);
    in_turn_ = true;
  }
  Status status = body();
  MutexLock lock(&mu_);
  in_turn_ = false;
  turn_ended_.Signal();
  return status;
}

Status BaseSession::AddAndNote(pb::GraphDef fresh) {
  if (fresh.node().empty() && fresh.library().function().empty()) return absl::OkStatus();
  std::vector<std::string> nodes, functions;
  for (const pb::NodeDef& node : fresh.node()) nodes.push_back(node.name());
  for (const pb::FunctionDef& function : fresh.library().function()) functions.push_back(function.signature().name());
  MR_RETURN_IF_ERROR(Add(std::move(fresh)));
  nodes_.insert(nodes.begin(), nodes.end());
  functions_.insert(functions.begin(), functions.end());
  return absl::OkStatus();
}

Status BaseSession::Extend(pb::GraphDef def) {
  return InTurn([&] { return AddAndNote(std::move(def)); });
}

Status BaseSession::Extend(const Graph& graph) {
  return InTurn([&] {
    pb::GraphDef fresh;
    *fresh.mutable_versions() = graph.versions();
    for (const Node* node : graph.nodes()) {
      if (!nodes_.contains(node->name())) *fresh.add_node() = ExportNodeDef(*node);
    }
    for (const pb::FunctionDef& function : graph.library().function()) {
      if (!functions_.contains(function.signature().name())) *fresh.mutable_library()->add_function() = function;
    }
    // The gradients that are registered for functions are sent with every new function.
    if (fresh.has_library()) *fresh.mutable_library()->mutable_gradient() = graph.library().gradient();
    return AddAndNote(std::move(fresh));
  });
}

Status BaseSession::Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                        absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata* metadata) {
  CallableSpec spec;
  std::vector<Tensor> values;
  spec.feeds.reserve(feeds.size());
  values.reserve(feeds.size());
  for (const auto& [name, value] : feeds) {
    spec.feeds.push_back(WholeName(name));
    values.push_back(value);
  }
  spec.fetches = WholeNames(fetches);
  spec.targets.assign(targets.begin(), targets.end());
  return RunStep(std::move(spec), std::move(values), options, results, metadata);
}

StatusOr<std::unique_ptr<Callable>> BaseSession::MakeCallable(const CallableSpec& spec) {
  return Compile({.feeds = WholeNames(spec.feeds), .fetches = WholeNames(spec.fetches), .targets = spec.targets});
}

StatusOr<std::string> BaseSession::PartialRunSetup(absl::Span<const std::string> feeds,
                                                   absl::Span<const std::string> fetches,
                                                   absl::Span<const std::string> targets) {
  return SetUpPartial(
      {.feeds = WholeNames(feeds), .fetches = WholeNames(fetches), .targets = {targets.begin(), targets.end()}});
}

Status BaseSession::PartialRun(const std::string& handle, absl::Span<const Feed> feeds,
                               absl::Span<const std::string> fetches, std::vector<Tensor>* results) {
  std::vector<Feed> whole;
  whole.reserve(feeds.size());
  for (const auto& [name, value] : feeds) whole.emplace_back(WholeName(name), value);
  return RunPartial(handle, std::move(whole), WholeNames(fetches), results);
}

}  // namespace millrace
