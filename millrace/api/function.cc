#include "millrace/api/function.h"

#include "millrace/api/function_builder.h"
#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"

namespace millrace {

Function Function::Define(const Scope& scope, absl::string_view name, const std::vector<FunctionArg>& args,
                          const Body& body) {
  Function function;
  if (!scope.ok()) return function;
  api_internal::FunctionBuilder builder(scope, api_internal::UniqueFunctionName(scope, name), args);
  if (!scope.ok() || !builder.Finish(body(builder.scope(), builder.args()))) return function;
  std::vector<Endpoint> captured;
  builder.ShareCaptured(&captured);
  builder.AddToLibrary();
  if (!scope.ok()) return function;
  function.name_ = builder.name();
  function.args_ = args;
  function.results_ = builder.results();
  function.captured_ = api_internal::AsOutputs(scope, captured);
  function.stateful_ = builder.is_stateful();
  return function;
}

Function Function::Declare(const Scope& scope, absl::string_view name, const std::vector<FunctionArg>& args,
                           const std::vector<FunctionArg>& results) {
  Function function;
  if (!scope.ok()) return function;
  function.name_ = api_internal::UniqueFunctionName(scope, name);
  function.args_ = args;
  function.results_ = results;
  return function;
}

void Function::DefineAs(const Scope& scope, const Body& body) const {
  if (!scope.ok()) return;
  api_internal::FunctionBuilder builder(scope, name_, args_);
  if (!scope.ok() || !builder.Finish(body(builder.scope(), builder.args()))) return;
  std::vector<Endpoint> captured;
  builder.ShareCaptured(&captured);
  const std::vector<FunctionArg> results = builder.results();
  bool same = captured.empty() && results.size() == results_.size();
  for (size_t i = 0; same && i < results.size(); ++i) same = results[i].dtype == results_[i].dtype;
  if (!same) {
    scope.UpdateStatus(InvalidArgument("function '", name_, "' ",
                                       captured.empty() ? "returns other results than were declared"
                                                        : "captures tensors, which a declared function may not"));
    return;
  }
  builder.AddToLibrary();
}

std::vector<Output> Function::operator()(const Scope& scope, const std::vector<Output>& args) const {
  if (!scope.ok()) return std::vector<Output>(results_.size());
  if (empty() || args.size() != args_.size()) {
    scope.UpdateStatus(
        InvalidArgument("function '", name_, "' takes ", args_.size(), " arguments, ", args.size(), " were given"));
    return std::vector<Output>(results_.size());
  }
  std::vector<Output> all = args;
  all.insert(all.end(), captured_.begin(), captured_.end());
  std::vector<DType> types;
  std::vector<PartialShape> shapes;
  for (const FunctionArg& result : results_) {
    types.push_back(result.dtype);
    shapes.push_back(result.shape);
  }
  const Operation call = OpCall(scope, stateful_ ? "StatefulPartitionedCall" : "PartitionedCall")
                             .In(InputList(all))
                             .Attr("Tout", types)
                             .Attr("f", api_internal::FunctionName(name_))
                             .Attr("_output_shapes", shapes)
                             .Add();
  return call.empty() ? std::vector<Output>(results_.size()) : call.outputs(0, call.num_outputs());
}

}  // namespace millrace
