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
  const size_t n = start.size();
  if (!scope.ok()) return std::vector<Output>(n);
  const Scope named = scope.op_name().empty() ? scope.WithOpName("while") : scope;
  const std::string name = named.op_name();
  const bool counted = options.maximum_iterations >= 0;
  // With a limit, an iteration counter is the first loop variable.
  std::vector<Output> variables = start;
  if (counted) {
    variables.insert(
        variables.begin(),
        OpCall(scope, "Const").Attr("value", Tensor::Scalar<int64_t>(0)).Attr("dtype", DType::kInt64).Add().output(0));
  }
  std::vector<FunctionArg> args;
  for (const Output& v : variables) args.push_back({v.dtype(), v.shape()});
  // Shapes are assumed to be invariant; if the body's results differ, it is built again with weaker shapes.
  for (int attempt = 0;; ++attempt) {
    FunctionBuilder cond_builder(scope, UniqueFunctionName(scope, name + "_cond"), args);
    FunctionBuilder body_builder(scope, UniqueFunctionName(scope, name + "_body"), args);
    if (!scope.ok()) return std::vector<Output>(n);
    const auto user_args = [&](const FunctionBuilder& b) {
      return std::vector<Output>(b.args().begin() + (counted ? 1 : 0), b.args().end());
    };
    Output goes_on = condition(cond_builder.scope(), user_args(cond_builder));
    if (counted && !goes_on.empty()) {
      const Scope& s = cond_builder.scope();
      const Output limit = OpCall(s, "Const")
                               .Attr("value", Tensor::Scalar<int64_t>(options.maximum_iterations))
                               .Attr("dtype", DType::kInt64)
                               .Add()
                               .output(0);
      const Output within = OpCall(s, "Less").In(cond_builder.args()[0]).In(limit).Add().output(0);
      goes_on = OpCall(s, "LogicalAnd").In(within).In(goes_on).Add().output(0);
    }
    if (!cond_builder.Finish({goes_on})) return std::vector<Output>(n);
    std::vector<Output> next = body(body_builder.scope(), user_args(body_builder));
    if (next.size() != n) {
      scope.UpdateStatus(
          InvalidArgument(name, ": the body of the loop gives ", next.size(), " values for ", n, " variables"));
      return std::vector<Output>(n);
    }
    if (counted) {
      const Scope& s = body_builder.scope();
      const Output one =
          OpCall(s, "Const").Attr("value", Tensor::Scalar<int64_t>(1)).Attr("dtype", DType::kInt64).Add().output(0);
      next.insert(next.begin(), OpCall(s, "AddV2").In(body_builder.args()[0]).In(one).Add().output(0));
    }
    std::vector<Endpoint> captured;
    cond_builder.ShareCaptured(&captured);
    if (!body_builder.Finish(next)) return std::vector<Output>(n);
    body_builder.ShareCaptured(&captured);
    cond_builder.ShareCaptured(&captured);
    const std::vector<FunctionArg> results = body_builder.results();
    bool stable = true;
    for (size_t i = 0; i < args.size(); ++i) {
      if (results[i].dtype != args[i].dtype) {
        scope.UpdateStatus(InvalidArgument(name, ": the body of the loop gives ", DTypeName(results[i].dtype),
                                           " for variable ", i - (counted ? 1 : 0), ", which is ",
                                           DTypeName(args[i].dtype)));
        return std::vector<Output>(n);
      }
      const PartialShape common = attempt < 3 ? Common(args[i].shape, results[i].shape) : PartialShape();
      if (common == args[i].shape) continue;
      args[i].shape = common;
      stable = false;
    }
    if (!stable) continue;
    // Captured tensors are loop variables that the body returns unchanged.
    body_builder.ReturnCaptured();
    cond_builder.AddToLibrary();
    body_builder.AddToLibrary();
    if (!scope.ok()) return std::vector<Output>(n);
    std::vector<Output> inputs = variables;
    for (const Output& e : AsOutputs(scope, captured)) inputs.push_back(e);
    std::vector<PartialShape> shapes;
    for (const FunctionArg& arg : args) shapes.push_back(arg.shape);
    for (const Endpoint& e : captured) shapes.push_back(e.shape());
    const bool stateful = cond_builder.is_stateful() || body_builder.is_stateful();
    const Operation loop = OpCall(named, stateful ? "While" : "StatelessWhile")
                               .In(InputList(inputs))
                               .Attr("cond", FunctionName(cond_builder.name()))
                               .Attr("body", FunctionName(body_builder.name()))
                               .Attr("output_shapes", shapes)
                               .Attr("parallel_iterations", static_cast<int64_t>(options.parallel_iterations))
                               .Add();
    const int first = counted ? 1 : 0;
    return loop.empty() ? std::vector<Output>(n) : loop.outputs(first, first + static_cast<int>(n));
  }
}

}  // namespace millrace
