#include <algorithm>
#include <cmath>
#include <utility>

#include "millrace/graph/gradient.h"
#include "millrace/graph/graph_def.h"
#include "millrace/tensor/tensor_proto.h"
#include "tests/golden/compare.h"
#include "tests/golden/run_case.h"

namespace millrace::golden {
namespace {

// A forward graph with its gradients, in a session.
struct Differentiated {
  Graph graph;
  std::vector<Grad> grads;                // one for each x
  std::vector<std::string> grad_fetches;  // their dense forms; empty where there is none
  std::vector<Feed> feeds;
  std::unique_ptr<Session> session;
  Places* places = nullptr;
};

StatusOr<std::vector<Endpoint>> FindEndpoints(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<Endpoint> endpoints;
  for (const std::string& name : names) {
    MR_ASSIGN_OR_RETURN(const Endpoint e, graph.FindEndpoint(name));
    endpoints.push_back(e);
  }
  return endpoints;
}

Status Differentiate(const CaseFolder& folder, const Case& c, const SessionOptions& options, pb::GraphDef def,
                     Differentiated* d) {
  MR_RETURN_IF_ERROR(WithPrefix("import: ", ImportGraphDef(std::move(def), &d->graph)));
  MR_ASSIGN_OR_RETURN(const auto ys, FindEndpoints(d->graph, c.ys));
  MR_ASSIGN_OR_RETURN(const auto xs, FindEndpoints(d->graph, c.xs));
  MR_ASSIGN_OR_RETURN(const auto grad_ys, FindEndpoints(d->graph, c.grad_ys));
  GradientOptions gradient_options;
  gradient_options.grad_ys.assign(grad_ys.begin(), grad_ys.end());
  MR_ASSIGN_OR_RETURN(d->grads, AddGradients(&d->graph, ys, xs, gradient_options));
  if (d->grads.size() != xs.size()) return Internal("got ", d->grads.size(), " gradients for ", xs.size(), " xs");

  GraphBuilder builder(&d->graph);
  for (const Grad& grad : d->grads) {
    // A node of its own, since the gradient may be a fed tensor, which cannot be fetched.
    const Endpoint dense = grad.IsNone() ? Endpoint{} : builder.Op("Identity", {Densify(builder, grad)});
    MR_RETURN_IF_ERROR(builder.status());
    d->grad_fetches.push_back(dense ? dense.name() : "");
  }
  MR_ASSIGN_OR_RETURN(const pb::RunStepRequest request, folder.ReadRequest(c, 1));
  MR_ASSIGN_OR_RETURN(d->feeds, FeedsOf(request));
  MR_ASSIGN_OR_RETURN(d->session, Session::Create(options));
  return d->session->Extend(d->graph);
}

// The dense gradients, an empty tensor where there is none.
StatusOr<std::vector<Tensor>> FetchGradients(Differentiated& d) {
  std::vector<std::string> fetches;
  for (const std::string& name : d.grad_fetches) {
    if (!name.empty()) fetches.push_back(name);
  }
  std::vector<Tensor> fetched;
  if (!fetches.empty()) MR_RETURN_IF_ERROR(RunBounded(*d.session, d.feeds, fetches, {}, &fetched, &d.graph, d.places));
  std::vector<Tensor> results;
  auto next = fetched.begin();
  for (const std::string& name : d.grad_fetches) {
    results.push_back(name.empty() ? Tensor() : *next++);
  }
  return results;
}

Status CompareGradients(const CaseFolder& folder, const Case& c, Differentiated& d) {
  MR_ASSIGN_OR_RETURN(const pb::RunStepResponse expectation, folder.ReadExpectation(c, 1));
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> got, FetchGradients(d));
  for (size_t i = 0; i < c.xs.size(); ++i) {
    const auto expected = std::find_if(expectation.tensor().begin(), expectation.tensor().end(),
                                       [&](const auto& t) { return t.name() == c.xs[i]; });
    if (expected == expectation.tensor().end()) continue;
    if (d.grads[i].IsNone()) return DataLoss(c.xs[i], " got no gradient");
    if (i < c.sparse.size() && c.sparse[i] && !d.grads[i].IsSlices()) {
      return DataLoss("the gradient of ", c.xs[i], " is dense, not slices");
    }
    MR_ASSIGN_OR_RETURN(const Tensor want, TensorFromProto(expected->tensor()));
    MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat("gradient of ", c.xs[i], ": "), Compare(want, got[i], c.rtol, c.atol)));
  }
  return absl::OkStatus();
}

bool CanBeDifferenced(const Tensor& t) { return t.dtype() == DType::kDouble || t.dtype() == DType::kFloat; }

// The number that is differentiated: the sum of the ys, each weighted by its grad_y.
StatusOr<double> WeightedSum(const Case& c, Differentiated& d, const std::vector<Feed>& feeds) {
  std::vector<std::string> fetches = c.ys;
  std::vector<Tensor> ys;
  MR_RETURN_IF_ERROR(RunBounded(*d.session, feeds, fetches, {}, &ys));
  double sum = 0;
  for (size_t i = 0; i < ys.size(); ++i) {
    if (!CanBeDifferenced(ys[i])) return FailedPrecondition(c.ys[i], " is neither float nor double");
    const Tensor* weight = nullptr;
    for (const Feed& feed : feeds) {
      if (i < c.grad_ys.size() && feed.first == c.grad_ys[i]) weight = &feed.second;
    }
    for (int64_t k = 0; k < ys[i].num_elements(); ++k) {
      sum += ElementAsDouble(ys[i], k) * (weight != nullptr ? ElementAsDouble(*weight, k) : 1.0);
    }
  }
  return sum;
}

void SetElement(Tensor& tensor, int64_t i, double value) {
  if (tensor.dtype() == DType::kDouble) {
    tensor.data<double>()[i] = value;
  } else {
    tensor.data<float>()[i] = static_cast<float>(value);
  }
}

StatusOr<double> WeightedSumAt(const Case& c, Differentiated& d, const std::string& x, const Tensor& value,
                               int64_t element, double at) {
  Tensor moved = value.Clone();
  SetElement(moved, element, at);
  std::vector<Feed> feeds;
  for (const Feed& feed : d.feeds) {
    if (feed.first != x) feeds.push_back(feed);
  }
  feeds.emplace_back(x, std::move(moved));
  return WeightedSum(c, d, feeds);
}

// How far to move an element, and how well gradient and slope must then agree. A float's result is good to
// seven digits, so its step is long and the agreement rough; it still tells a wrong formula.
struct Probe {
  double step;
  double tolerance;
  double kink;  // slopes to the left and right that differ by more are no derivative
};
Probe ProbeFor(DType dtype) { return dtype == DType::kDouble ? Probe{1e-5, 1e-5, 1e-2} : Probe{5e-3, 2e-2, 5e-2}; }

// Compares the gradient of one x with differences at up to kProbes of its elements. Where the slopes
// to the left and right differ there is a kink (a maximum's tie, a step), and any value between is right.
Status CheckX(const Case& c, Differentiated& d, const std::string& x, const Tensor& value, const Tensor& grad) {
  constexpr int64_t kProbes = 10;
  const Probe probe = ProbeFor(value.dtype());
  MR_ASSIGN_OR_RETURN(const double middle, WeightedSum(c, d, d.feeds));
  const int64_t stride = std::max<int64_t>(1, value.num_elements() / kProbes);
  for (int64_t k = 0; k < value.num_elements(); k += stride) {
    const double here = ElementAsDouble(value, k);
    const double step = probe.step * std::max(1.0, std::abs(here));
    MR_ASSIGN_OR_RETURN(const double below, WeightedSumAt(c, d, x, value, k, here - step));
    MR_ASSIGN_OR_RETURN(const double above, WeightedSumAt(c, d, x, value, k, here + step));
    const double left = (middle - below) / step;
    const double right = (above - middle) / step;
    const double slope = (above - below) / (2 * step);
    const double scale = std::max({1.0, std::abs(slope), std::abs(middle)});
    if (!std::isfinite(slope) || std::abs(left - right) > probe.kink * scale) continue;
    const double got = grad.IsInitialized() ? ElementAsDouble(grad, k) : 0.0;
    if (!(std::abs(got - slope) <= probe.tolerance * scale)) {
      return DataLoss("gradient of ", x, " at element ", k, " is ", got, ", but the differences say ", slope);
    }
  }
  return absl::OkStatus();
}

// The ops whose gradient is by definition not the derivative.
bool IsNotItsDerivative(const std::string& op) {
  return op == "StopGradient" || op == "PreventGradient" || op == "FakeQuantWithMinMaxArgs" ||
         op == "FakeQuantWithMinMaxVars" || op == "FakeQuantWithMinMaxVarsPerChannel";
}

Status CheckAllXs(const Case& c, Differentiated& d, int* checked) {
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> grads, FetchGradients(d));
  for (size_t i = 0; i < c.xs.size(); ++i) {
    std::vector<Tensor> value;
    const auto fed = std::find_if(d.feeds.begin(), d.feeds.end(), [&](const Feed& f) { return f.first == c.xs[i]; });
    if (fed != d.feeds.end()) {
      value = {fed->second};
    } else {
      MR_RETURN_IF_ERROR(RunBounded(*d.session, d.feeds, {c.xs[i]}, {}, &value));
    }
    if (!CanBeDifferenced(value[0])) continue;
    MR_RETURN_IF_ERROR(CheckX(c, d, c.xs[i], value[0], grads[i]));
    ++*checked;
  }
  return absl::OkStatus();
}

StatusOr<pb::GraphDef> ReadOrMissing(const CaseFolder& folder, const Case& c, Outcome* outcome) {
  MR_ASSIGN_OR_RETURN(pb::GraphDef def, folder.ReadGraph(c));
  outcome->needs = MissingOps(def);
  if (!outcome->needs.empty()) outcome->kind = Outcome::kNeedsOp;
  return def;
}

// The gradient of the cross entropy assumes, like TensorFlow's, that each row of labels adds up to one. If the labels
// of a case do not, it is not the derivative.
StatusOr<bool> LabelsAddUpToOne(const Differentiated& d) {
  for (const Node* node : d.graph.nodes()) {
    if (!node->is_type("SoftmaxCrossEntropyWithLogits")) continue;
    const std::string name = node->input(1).name();
    Tensor labels;
    for (const auto& [fed, value] : d.feeds) {
      if (fed == name) labels = value;
    }
    if (!labels.IsInitialized()) {
      MR_ASSIGN_OR_RETURN(const std::vector<Tensor> fetched, d.session->Run(d.feeds, {name}));
      labels = fetched[0];
    }
    if (labels.rank() != 2 || (labels.dtype() != DType::kFloat && labels.dtype() != DType::kDouble)) continue;
    for (int64_t r = 0; r < labels.dim(0); ++r) {
      double sum = 0;
      for (int64_t k = 0; k < labels.dim(1); ++k) {
        const int64_t at = r * labels.dim(1) + k;
        sum += labels.dtype() == DType::kFloat ? labels.data<float>()[at] : labels.data<double>()[at];
      }
      if (std::abs(sum - 1) > 1e-4) return false;
    }
  }
  return true;
}

}  // namespace

Outcome RunGradientCase(const CaseFolder& folder, const Case& c, const SessionOptions& options, Places* places) {
  Outcome outcome;
  StatusOr<pb::GraphDef> def = ReadOrMissing(folder, c, &outcome);
  if (!def.ok()) return Outcome::From(def.status());
  if (outcome.kind != Outcome::kPassed) return outcome;
  Differentiated d;
  d.places = places;
  const Status ready = Differentiate(folder, c, options, *std::move(def), &d);
  return Outcome::From(ready.ok() ? CompareGradients(folder, c, d) : ready);
}

Outcome CheckFiniteDifferences(const CaseFolder& folder, const Case& c, const SessionOptions& options) {
  Outcome outcome;
  StatusOr<pb::GraphDef> def = ReadOrMissing(folder, c, &outcome);
  if (!def.ok()) return Outcome::From(def.status());
  if (outcome.kind != Outcome::kPassed) return outcome;
  for (const pb::NodeDef& node : def->node()) {
    if (IsNotItsDerivative(node.op())) return {Outcome::kNotMeant, "", {}};
  }
  Differentiated d;
  const Status ready = Differentiate(folder, c, options, *std::move(def), &d);
  if (!ready.ok()) return Outcome::From(ready);
  const StatusOr<bool> labels_add_up = LabelsAddUpToOne(d);
  if (!labels_add_up.ok()) return Outcome::From(labels_add_up.status());
  if (!*labels_add_up) return {Outcome::kNotMeant, "", {}};
  int checked = 0;
  const Status status = CheckAllXs(c, d, &checked);
  if (absl::IsFailedPrecondition(status) || (status.ok() && checked == 0)) return {Outcome::kNotMeant, "", {}};
  return Outcome::From(status);
}

}  // namespace millrace::golden
