#include "millrace/api/control_flow.h"

#include <deque>

#include "millrace/api/function_builder.h"
#include "millrace/api/op_call.h"

namespace millrace {
namespace {

using api_internal::AsOutputs;
using api_internal::FunctionBuilder;
using api_internal::FunctionName;
using api_internal::UniqueFunctionName;

// The dimensions on which two shapes agree.
PartialShape Common(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank() || !b.known_rank() || a.rank() != b.rank()) return PartialShape();
  PartialShape common = a;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.dim(i) != b.dim(i)) common.set_dim(i, PartialShape::kUnknown);
  }
  return common;
}

// The built branches, with the same captured tensors and result types.
struct Branches {
  std::vector<std::string> names;
  std::vector<Endpoint> captured;
  std::vector<DType> types;
  std::vector<PartialShape> shapes;
  bool stateful = false;
};

bool BuildBranches(const Scope& scope, const std::vector<Branch>& branches, const std::vector<std::string>& names,
                   Branches* out) {
  std::deque<FunctionBuilder> builders;
  for (size_t i = 0; i < branches.size(); ++i) {
    builders.emplace_back(scope, UniqueFunctionName(scope, names[i]), std::vector<FunctionArg>{});
    FunctionBuilder& builder = builders.back();
    if (!scope.ok() || !builder.Finish(branches[i](builder.scope()))) return false;
    builder.ShareCaptured(&out->captured);
    out->stateful |= builder.is_stateful();
    const std::vector<FunctionArg> results = builder.results();
    if (i == 0) {
      for (const FunctionArg& r : results) {
        out->types.push_back(r.dtype);
        out->shapes.push_back(r.shape);
      }
      continue;
    }
    bool same = results.size() == out->types.size();
    for (size_t r = 0; same && r < results.size(); ++r) {
      same = results[r].dtype == out->types[r];
      out->shapes[r] = Common(out->shapes[r], results[r].shape);
    }
    if (!same) {
      scope.UpdateStatus(InvalidArgument("the branches '", names[0], "' and '", names[i],
                                         "' give results of different number or types"));
      return false;
    }
  }
  // Now the captures of all branches are known.
  for (FunctionBuilder& builder : builders) {
    builder.ShareCaptured(&out->captured);
    builder.AddToLibrary();
    out->names.push_back(builder.name());
  }
  return scope.ok();
}

std::vector<Output> OutputsOf(const Operation& op, size_t n) {
  return op.empty() ? std::vector<Output>(n) : op.outputs(0, op.num_outputs());
}

Output Int64Constant(const Scope& scope, int64_t value) {
  return OpCall(scope, "Const")
      .Attr("value", Tensor::Scalar<int64_t>(value))
      .Attr("dtype", DType::kInt64)
      .Add()
      .output(0);
}

// Builds the two functions of a loop, and the loop itself. With a limit, an iteration counter is the first of the
// loop's variables.
class WhileBuilder {
 public:
  WhileBuilder(const Scope& scope, const std::vector<Output>& start, const LoopCondition& condition,
               const Function::Body& body, const WhileOptions& options)
      : scope_(scope),
        named_(scope.op_name().empty() ? scope.WithOpName("while") : scope),
        condition_(condition),
        body_(body),
        options_(options),
        counters_(options.maximum_iterations >= 0 ? 1 : 0),
        variables_(start) {
    if (counters_ > 0) variables_.insert(variables_.begin(), Int64Constant(scope, 0));
    for (const Output& v : variables_) args_.push_back({v.dtype(), v.shape()});
  }

  // The results of the loop; empty if the scope got an error.
  std::vector<Output> Build() {
    // Shapes are assumed to be invariant; if the body's results differ, it is built again with weaker shapes.
    for (int attempt = 0;; ++attempt) {
      FunctionBuilder cond(scope_, UniqueFunctionName(scope_, named_.op_name() + "_cond"), args_);
      FunctionBuilder body(scope_, UniqueFunctionName(scope_, named_.op_name() + "_body"), args_);
      std::vector<Endpoint> captured;
      if (!scope_.ok() || !BuildFunctions(cond, body, &captured)) return {};
      const bool stable = WeakenShapes(body.results(), attempt);
      if (!scope_.ok()) return {};
      if (stable) return AddLoop(cond, body, captured);
    }
  }

 private:
  std::vector<Output> UserArgs(const FunctionBuilder& builder) const {
    return std::vector<Output>(builder.args().begin() + counters_, builder.args().end());
  }

  bool BuildCondition(FunctionBuilder& cond) {
    const Scope& s = cond.scope();
    Output goes_on = condition_(s, UserArgs(cond));
    if (counters_ > 0 && !goes_on.empty()) {
      const Output limit = Int64Constant(s, options_.maximum_iterations);
      const Output within = OpCall(s, "Less").In(cond.args()[0]).In(limit).Add().output(0);
      goes_on = OpCall(s, "LogicalAnd").In(within).In(goes_on).Add().output(0);
    }
    return cond.Finish({goes_on});
  }

  bool BuildFunctions(FunctionBuilder& cond, FunctionBuilder& body, std::vector<Endpoint>* captured) {
    if (!BuildCondition(cond)) return false;
    const Scope& s = body.scope();
    std::vector<Output> next = body_(s, UserArgs(body));
    const size_t n = variables_.size() - static_cast<size_t>(counters_);
    if (next.size() != n) {
      scope_.UpdateStatus(InvalidArgument(named_.op_name(), ": the body of the loop gives ", next.size(),
                                          " values for ", n, " variables"));
      return false;
    }
    if (counters_ > 0) {
      const Output one = Int64Constant(s, 1);
      next.insert(next.begin(), OpCall(s, "AddV2").In(body.args()[0]).In(one).Add().output(0));
    }
    cond.ShareCaptured(captured);
    if (!body.Finish(next)) return false;
    body.ShareCaptured(captured);
    cond.ShareCaptured(captured);
    return true;
  }

  // Keeps what the shapes of the variables and of the body's results have in common. True if nothing changed.
  bool WeakenShapes(const std::vector<FunctionArg>& results, int attempt) {
    bool stable = true;
    for (size_t i = 0; i < args_.size(); ++i) {
      if (results[i].dtype != args_[i].dtype) {
        scope_.UpdateStatus(InvalidArgument(
            named_.op_name(), ": the body of the loop gives ", DTypeName(results[i].dtype), " for variable ",
            i - static_cast<size_t>(counters_), ", which is ", DTypeName(args_[i].dtype)));
        return false;
      }
      const PartialShape common = attempt < 3 ? Common(args_[i].shape, results[i].shape) : PartialShape();
      if (common == args_[i].shape) continue;
      args_[i].shape = common;
      stable = false;
    }
    return stable;
  }

  std::vector<Output> AddLoop(FunctionBuilder& cond, FunctionBuilder& body, const std::vector<Endpoint>& captured) {
    // Captured tensors are loop variables that the body returns unchanged.
    body.ReturnCaptured();
    cond.AddToLibrary();
    body.AddToLibrary();
    if (!scope_.ok()) return {};
    std::vector<Output> inputs = variables_;
    for (const Output& e : AsOutputs(scope_, captured)) inputs.push_back(e);
    std::vector<PartialShape> shapes;
    for (const FunctionArg& arg : args_) shapes.push_back(arg.shape);
    for (const Endpoint& e : captured) shapes.push_back(e.shape());
    const Operation loop = OpCall(named_, cond.is_stateful() || body.is_stateful() ? "While" : "StatelessWhile")
                               .In(InputList(inputs))
                               .Attr("cond", FunctionName(cond.name()))
                               .Attr("body", FunctionName(body.name()))
                               .Attr("output_shapes", shapes)
                               .Attr("parallel_iterations", static_cast<int64_t>(options_.parallel_iterations))
                               .Add();
    if (loop.empty()) return {};
    return loop.outputs(counters_, static_cast<int>(variables_.size()));
  }

  const Scope& scope_;
  const Scope named_;
  const LoopCondition& condition_;
  const Function::Body& body_;
  const WhileOptions& options_;
  const int counters_;  // 1 with a limit, otherwise 0
  std::vector<Output> variables_;
  std::vector<FunctionArg> args_;  // types and shapes of the variables
};

}  // namespace

std::vector<Output> Cond(const Scope& scope, const Output& predicate, const Branch& then, const Branch& otherwise) {
  if (!scope.ok()) return {};
  const Scope named = scope.op_name().empty() ? scope.WithOpName("cond") : scope;
  const std::string name = named.op_name();
  Branches built;
  if (!BuildBranches(scope, {then, otherwise}, {name + "_true", name + "_false"}, &built)) {
    return std::vector<Output>(built.types.size());
  }
  const std::vector<Output> captured = AsOutputs(scope, built.captured);
  return OutputsOf(OpCall(named, built.stateful ? "If" : "StatelessIf")
                       .In(predicate)
                       .In(InputList(captured))
                       .Attr("Tout", built.types)
                       .Attr("then_branch", FunctionName(built.names[0]))
                       .Attr("else_branch", FunctionName(built.names[1]))
                       .Attr("output_shapes", built.shapes)
                       .Add(),
                   built.types.size());
}

Output Cond(const Scope& scope, const Output& predicate, const std::function<Output(const Scope&)>& then,
            const std::function<Output(const Scope&)>& otherwise) {
  const std::vector<Output> results =
      Cond(scope, predicate, Branch([&](const Scope& s) { return std::vector<Output>{then(s)}; }),
           Branch([&](const Scope& s) { return std::vector<Output>{otherwise(s)}; }));
  return results.empty() ? Output() : results[0];
}

std::vector<Output> Case(const Scope& scope, const Output& index, const std::vector<Branch>& branches) {
  if (!scope.ok()) return {};
  const Scope named = scope.op_name().empty() ? scope.WithOpName("case") : scope;
  if (branches.empty()) {
    scope.UpdateStatus(InvalidArgument(named.op_name(), ": a case needs at least one branch"));
    return {};
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < branches.size(); ++i) names.push_back(absl::StrCat(named.op_name(), "_branch_", i));
  Branches built;
  if (!BuildBranches(scope, branches, names, &built)) return std::vector<Output>(built.types.size());
  pb::AttrValue functions;
  for (const std::string& name : built.names) *functions.mutable_list()->add_func() = FunctionName(name);
  const std::vector<Output> captured = AsOutputs(scope, built.captured);
  return OutputsOf(OpCall(named, built.stateful ? "Case" : "StatelessCase")
                       .In(index)
                       .In(InputList(captured))
                       .Attr("Tout", built.types)
                       .Attr("branches", functions)
                       .Attr("output_shapes", built.shapes)
                       .Add(),
                   built.types.size());
}

std::vector<Output> While(const Scope& scope, const std::vector<Output>& start, const LoopCondition& condition,
                          const Function::Body& body, const WhileOptions& options) {
  if (!scope.ok()) return std::vector<Output>(start.size());
  WhileBuilder builder(scope, start, condition, body, options);
  std::vector<Output> results = builder.Build();
  return results.empty() ? std::vector<Output>(start.size()) : results;
}

}  // namespace millrace
