#include "millrace/api/functional.h"

#include "millrace/api/control_flow.h"
#include "millrace/api/function_builder.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/rnn_sequence.h"

namespace millrace {
namespace {

// The elements of several tensors of the same length, for a loop.
struct Elements {
  Output count;  // int32
  std::vector<RowList> lists;
  std::vector<FunctionArg> types;

  std::vector<Output> At(const Scope& s, const Output& i) const {
    std::vector<Output> elements;
    for (const RowList& list : lists) elements.push_back(list.At(s, i));
    return elements;
  }
};

// False, with the scope's error, if the tensors have no elements to go over or not the same number.
bool Take(const Scope& s, const std::vector<Output>& tensors, Elements* out) {
  if (!s.ok()) return false;
  if (tensors.empty()) {
    s.UpdateStatus(InvalidArgument(s.prefix(), ": there are no tensors to take elements of"));
    return false;
  }
  int64_t count = -1;
  for (const Output& t : tensors) {
    const PartialShape shape = t.shape();
    if (t.empty() || (shape.known_rank() && shape.rank() == 0)) {
      s.UpdateStatus(InvalidArgument(s.prefix(), ": ", t.empty() ? "an empty Output" : t.name(), " of shape ",
                                     shape.ToString(), " has no elements: it needs at least one dimension"));
      return false;
    }
    const int64_t n = shape.known_rank() ? shape.dim(0) : -1;
    if (count >= 0 && n >= 0 && n != count) {
      s.UpdateStatus(InvalidArgument(s.prefix(), ": ", t.name(), " has ", n, " elements, but ", tensors[0].name(),
                                     " has ", count));
      return false;
    }
    if (count < 0) count = n;
    out->lists.push_back(RowList::Of(s, t));
    out->types.push_back({t.dtype(), shape.known_rank() ? PartialShape(shape.dims().subspan(1)) : PartialShape()});
  }
  out->count = DimOf(s, tensors[0], 0);
  return s.ok();
}

// The types and shapes that `function` gives; it is built for that only.
bool ResultTypes(const Scope& s, const MapFunction& function, const Elements& elements,
                 std::vector<FunctionArg>* results) {
  api_internal::FunctionBuilder probe(s, api_internal::UniqueFunctionName(s, "map_fn_types"), elements.types);
  if (!s.ok() || !probe.Finish(function(probe.scope(), probe.args()))) return false;
  *results = probe.results();
  return true;
}

// A fold over the elements, with the values after each of them if `with_all`.
struct Folded {
  std::vector<Output> last;
  std::vector<Output> all;
};
struct FoldPlan {
  bool reverse = false;
  bool with_all = false;
  int parallel_iterations = 10;
};

Folded Fold(const Scope& s, const FoldFunction& function, const std::vector<Output>& tensors, std::vector<Output> start,
            const FoldPlan& plan) {
  Elements elements;
  if (!Take(s, tensors, &elements)) return {};
  const Output& count = elements.count;
  const Output zero = Input(0).In(s.WithOpName("first"));
  const bool given = !start.empty();
  // The element that is the start if none is given, and the one after it.
  const Output end = plan.reverse ? count - 1 : zero;
  if (!given) start = elements.At(s, end);
  const size_t n = start.size();
  std::vector<Output> variables = {given ? zero : Input(1).In(s.WithOpName("second"))};
  variables.insert(variables.end(), start.begin(), start.end());
  std::vector<RowList> results;
  for (size_t i = 0; plan.with_all && i < n && s.ok(); ++i) {
    const Output dims = Op(s, "Shape", {start[i]});
    results.push_back(RowList::Reserve(s, start[i].dtype(), dims, start[i].shape(), tensors[0]));
    const Output list = results[i].list();
    variables.push_back(given ? list : results[i].With(s, list, end, start[i]));
  }
  if (!s.ok()) return {};
  const std::vector<Output> done = While(
      s, variables, [&](const Scope&, const std::vector<Output>& v) { return v[0] < count; },
      [&](const Scope& body, const std::vector<Output>& v) {
        const Output at = plan.reverse ? Op(body, "Sub", {Op(body, "Sub", {count, 1}), v[0]}) : v[0];
        const std::vector<Output> accumulated(v.begin() + 1, v.begin() + 1 + static_cast<std::ptrdiff_t>(n));
        std::vector<Output> next = function(body, accumulated, elements.At(body, at));
        if (next.size() != n && body.ok()) {
          body.UpdateStatus(InvalidArgument(s.prefix(), ": the function gives ", next.size(), " values for ", n,
                                            " that are accumulated"));
        }
        next.resize(n);
        std::vector<Output> lists;
        for (size_t i = 0; i < results.size(); ++i) lists.push_back(results[i].With(body, v[1 + n + i], at, next[i]));
        next.insert(next.begin(), v[0] + 1);
        next.insert(next.end(), lists.begin(), lists.end());
        return next;
      },
      {.parallel_iterations = plan.parallel_iterations});
  if (!s.ok()) return {};
  Folded folded;
  folded.last.assign(done.begin() + 1, done.begin() + 1 + static_cast<std::ptrdiff_t>(n));
  for (size_t i = 0; i < results.size(); ++i) folded.all.push_back(results[i].Stack(s, done[1 + n + i]));
  return folded;
}

FoldFunction OfVectors(const FoldOne& function) {
  return [&function](const Scope& s, const std::vector<Output>& a, const std::vector<Output>& e) {
    return std::vector<Output>{function(s, a[0], e[0])};
  };
}

std::vector<Output> OneOrNone(const Output& start) {
  return start.empty() ? std::vector<Output>{} : std::vector<Output>{start};
}

Output First(const std::vector<Output>& outputs) { return outputs.empty() ? Output() : outputs[0]; }

}  // namespace

std::vector<Output> MapFn(const Scope& scope, const MapFunction& function, const std::vector<Output>& tensors,
                          const MapOptions& options) {
  const Scope s = scope.ForComposite("map");
  Elements elements;
  std::vector<FunctionArg> types;
  if (!Take(s, tensors, &elements) || !ResultTypes(s, function, elements, &types)) return {};
  const Output& count = elements.count;
  std::vector<Output> variables = {Input(0).In(s.WithOpName("first"))};
  std::vector<RowList> results;
  for (const FunctionArg& type : types) {
    results.push_back(RowList::Reserve(s, type.dtype, Output(), type.shape, tensors[0]));
    variables.push_back(results.back().list());
  }
  const std::vector<Output> done = While(
      s, variables, [&](const Scope&, const std::vector<Output>& v) { return v[0] < count; },
      [&](const Scope& body, const std::vector<Output>& v) {
        const std::vector<Output> mapped = function(body, elements.At(body, v[0]));
        std::vector<Output> next = {v[0] + 1};
        for (size_t i = 0; i < results.size(); ++i) next.push_back(results[i].With(body, v[1 + i], v[0], mapped[i]));
        return next;
      },
      {.parallel_iterations = options.parallel_iterations});
  if (!s.ok()) return {};
  std::vector<Output> stacked;
  for (size_t i = 0; i < results.size(); ++i) stacked.push_back(results[i].Stack(s, done[1 + i]));
  return stacked;
}

Output MapFn(const Scope& scope, const std::function<Output(const Scope&, const Output&)>& function,
             const Output& elements, const MapOptions& options) {
  return First(MapFn(
      scope, [&](const Scope& s, const std::vector<Output>& e) { return std::vector<Output>{function(s, e[0])}; },
      std::vector<Output>{elements}, options));
}

std::vector<Output> Scan(const Scope& scope, const FoldFunction& function, const std::vector<Output>& elements,
                         const std::vector<Output>& start, const ScanOptions& options) {
  return Fold(scope.ForComposite("scan"), function, elements, start,
              {.reverse = options.reverse, .with_all = true, .parallel_iterations = options.parallel_iterations})
      .all;
}
Output Scan(const Scope& scope, const FoldOne& function, const Output& elements, const Output& start,
            const ScanOptions& options) {
  return First(Scan(scope, OfVectors(function), std::vector<Output>{elements}, OneOrNone(start), options));
}

std::vector<Output> Foldl(const Scope& scope, const FoldFunction& function, const std::vector<Output>& elements,
                          const std::vector<Output>& start, const FoldOptions& options) {
  return Fold(scope.ForComposite("foldl"), function, elements, start,
              {.parallel_iterations = options.parallel_iterations})
      .last;
}
Output Foldl(const Scope& scope, const FoldOne& function, const Output& elements, const Output& start,
             const FoldOptions& options) {
  return First(Foldl(scope, OfVectors(function), std::vector<Output>{elements}, OneOrNone(start), options));
}

std::vector<Output> Foldr(const Scope& scope, const FoldFunction& function, const std::vector<Output>& elements,
                          const std::vector<Output>& start, const FoldOptions& options) {
  return Fold(scope.ForComposite("foldr"), function, elements, start,
              {.reverse = true, .parallel_iterations = options.parallel_iterations})
      .last;
}
Output Foldr(const Scope& scope, const FoldOne& function, const Output& elements, const Output& start,
             const FoldOptions& options) {
  return First(Foldr(scope, OfVectors(function), std::vector<Output>{elements}, OneOrNone(start), options));
}

}  // namespace millrace
