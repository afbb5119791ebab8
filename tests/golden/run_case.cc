#include "tests/golden/run_case.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/tensor/tensor_proto.h"
#include "tests/golden/compare.h"

namespace millrace::golden {
namespace {

// OK if `got` is the error that the case expects.
Status CheckError(const Case& c, const Status& got) {
  if (got.ok()) return DataLoss("succeeded, want ", c.error_name);
  if (static_cast<int>(got.code()) != c.error_code) {
    return DataLoss("want ", c.error_name, ", got ", got.ToString());
  }
  if (!absl::StrContains(got.message(), c.error_fragment)) {
    return DataLoss("the message lacks '", c.error_fragment, "': ", got.ToString());
  }
  return absl::OkStatus();
}

// OK when each result has a shape that inference allows. Only graphs fed at placeholders are looked
// at: a feed anywhere else need not have the shape that its node would give. Nor need a variable have
// the shape it was declared with after an Assign that does not validate.
Status CheckInferredShapes(const Graph& graph, const pb::RunStepRequest& request, const std::vector<Tensor>& results) {
  for (const pb::NamedTensorProto& feed : request.feed()) {
    const StatusOr<Endpoint> fed = graph.FindEndpoint(feed.name());
    if (!fed.ok() || !fed->node->is_type("Placeholder")) return absl::OkStatus();
  }
  for (const Node* node : graph.nodes()) {
    if (node->is_type("Assign") && !node->AttrOr<bool>("validate_shape", true)) return absl::OkStatus();
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const StatusOr<Endpoint> fetched = graph.FindEndpoint(request.fetch(static_cast<int>(i)));
    if (!fetched.ok() || fetched->shape().IsCompatibleWith(results[i].shape())) continue;
    return DataLoss(request.fetch(static_cast<int>(i)), ": shape inference says ", fetched->shape().ToString(),
                    ", but the result is ", results[i].shape().ToString());
  }
  return absl::OkStatus();
}

Status CompareFetches(const Case& c, const pb::RunStepRequest& request, const std::vector<Tensor>& results,
                      const pb::RunStepResponse& expectation) {
  for (const pb::NamedTensorProto& expected : expectation.tensor()) {
    const auto at = std::find(request.fetch().begin(), request.fetch().end(), expected.name());
    if (at == request.fetch().end()) return DataLoss(expected.name(), " is expected but not fetched");
    const size_t index = at - request.fetch().begin();
    if (index >= results.size()) return DataLoss("got ", results.size(), " results, not ", request.fetch_size());
    MR_ASSIGN_OR_RETURN(const Tensor want, TensorFromProto(expected.tensor()));
    MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat(expected.name(), ": "), Compare(want, results[index], c.rtol, c.atol)));
  }
  return absl::OkStatus();
}

Status RunStep(const CaseFolder& folder, const Case& c, int step, const Graph& graph, Session& session,
               Places* places) {
  MR_ASSIGN_OR_RETURN(const pb::RunStepRequest request, folder.ReadRequest(c, step));
  MR_ASSIGN_OR_RETURN(const pb::RunStepResponse expectation, folder.ReadExpectation(c, step));
  MR_ASSIGN_OR_RETURN(const std::vector<Feed> feeds, FeedsOf(request));
  const std::vector<std::string> fetches(request.fetch().begin(), request.fetch().end());
  const std::vector<std::string> targets(request.target().begin(), request.target().end());
  std::vector<Tensor> results;
  const Status status = RunBounded(session, feeds, fetches, targets, &results, &graph, places);
  if (step == c.error_step) return CheckError(c, status);
  MR_RETURN_IF_ERROR(status);
  MR_RETURN_IF_ERROR(CheckInferredShapes(graph, request, results));
  return CompareFetches(c, request, results, expectation);
}

Status RunSteps(const CaseFolder& folder, const Case& c, const SessionOptions& options, pb::GraphDef graph,
                Places* places) {
  MR_RETURN_IF_ERROR(folder.EnterWithEmptyTmp());
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Create(options));
  Graph inferred;
  if (ImportGraphDef(graph, &inferred).ok()) MR_RETURN_IF_ERROR(InferShapes(&inferred, /*lenient=*/true));
  const Status created = session->Extend(std::move(graph));
  if (!created.ok() && c.error_step == 1 && c.may_fail_at_create) return CheckError(c, created);
  MR_RETURN_IF_ERROR(WithPrefix("session: ", created));
  for (int step = 1; step <= c.steps; ++step) {
    MR_RETURN_IF_ERROR(WithPrefix(c.steps > 1 ? absl::StrCat("step ", step, ": ") : "",
                                  RunStep(folder, c, step, inferred, *session, places)));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<Feed>> FeedsOf(const pb::RunStepRequest& request) {
  std::vector<Feed> feeds;
  for (const pb::NamedTensorProto& feed : request.feed()) {
    MR_ASSIGN_OR_RETURN(Tensor value, TensorFromProto(feed.tensor()));
    feeds.emplace_back(feed.name(), std::move(value));
  }
  return feeds;
}

Status RunBounded(Session& session, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                  absl::Span<const std::string> targets, std::vector<Tensor>* results, const Graph* graph,
                  Places* places) {
  RunOptions options;
  options.timeout = absl::Seconds(60);
  options.trace = places != nullptr;
  RunMetadata metadata;
  MR_RETURN_IF_ERROR(session.Run(options, feeds, fetches, targets, results, places == nullptr ? nullptr : &metadata));
  return places == nullptr ? absl::OkStatus() : places->Note(*graph, metadata);
}

Outcome RunCase(const CaseFolder& folder, const Case& c, const SessionOptions& options, Places* places) {
  StatusOr<pb::GraphDef> graph = folder.ReadGraph(c);
  if (!graph.ok()) return Outcome::From(graph.status());
  std::vector<std::string> missing = MissingOps(*graph);
  // A case that tests an unknown op does not count as one with a missing op.
  const bool is_the_point = missing.size() == 1 && missing[0] == c.error_fragment;
  if (!missing.empty() && !is_the_point) return {Outcome::kNeedsOp, "", std::move(missing)};
  return Outcome::From(RunSteps(folder, c, options, *std::move(graph), places));
}

}  // namespace millrace::golden
