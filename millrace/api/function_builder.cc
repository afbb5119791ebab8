#include "millrace/api/function_builder.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_replace.h"
#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"

namespace millrace {
namespace api_internal {

FunctionBuilder::FunctionBuilder(const Scope& outer, std::string name, const std::vector<FunctionArg>& args)
    : outer_(outer), scope_(Scope::NewRoot()) {
  GraphState& state = api_internal::StateOf(scope_);
  state.outer = &api_internal::StateOf(outer);
  state.depth = api_internal::StateOf(outer).depth + 1;
  state.function_name = name;
  state.random_seed = api_internal::StateOf(outer).random_seed;
  state.graph.ShareLibrary(*outer.graph());
  state.graph.set_versions(outer.graph()->versions());
  body_.name = std::move(name);
  for (const FunctionArg& arg : args) {
    Node* node = AddArg(arg.dtype, arg.shape);
    if (node == nullptr) return;
    args_.emplace_back(scope_, node->output(0));
  }
}

Node* FunctionBuilder::AddArg(DType dtype, const PartialShape& shape) {
  Graph* const graph = scope_.graph();
  NodeSpec spec;
  spec.name = graph->UniqueName(absl::StrCat("arg_", body_.args.size()));
  spec.op = "_Arg";
  spec.attrs["T"].set_type(static_cast<pb::DataType>(dtype));
  spec.attrs["index"].set_i(static_cast<int64_t>(body_.args.size()));
  shape.ToProto(spec.attrs["_output_shapes"].mutable_list()->add_shape());
  StatusOr<Node*> node = graph->AddNode(std::move(spec));
  if (!node.ok()) {
    outer_.UpdateStatus(node.status());
    return nullptr;
  }
  graph->SetOutputShape(*node, 0, shape);
  body_.args.push_back(*node);
  return *node;
}

bool FunctionBuilder::Finish(const std::vector<Output>& results) {
  Graph* const graph = scope_.graph();
  const auto fail = [&](const Status& status) {
    outer_.UpdateStatus(WithPrefix(absl::StrCat("in function '", body_.name, "': "), status));
    return false;
  };
  if (!scope_.ok()) return fail(scope_.status());
  const absl::flat_hash_set<const Node*> own(graph->nodes().begin(), graph->nodes().end());
  absl::flat_hash_map<Endpoint, Endpoint> taken;
  const auto take = [&](Endpoint e) {
    if (own.contains(e.node)) return e;
    Endpoint& inside = taken[e];
    if (!inside) {
      Node* arg = AddArg(BaseType(e.dtype()), e.shape());
      if (arg == nullptr) return e;
      inside = arg->output(0);
      captured_.push_back(e);
    }
    return inside;
  };
  const std::vector<Node*> nodes(graph->nodes().begin(), graph->nodes().end());
  for (Node* node : nodes) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!own.contains(node->input(i).node)) graph->SetInput(node, i, take(node->input(i)));
    }
    for (Node* before : node->control_inputs()) {
      if (!own.contains(before)) {
        return fail(InvalidArgument("node ", node->name(), " waits for ", before->name(),
                                    ", which is outside of the function"));
      }
    }
  }
  for (const Output& result : results) {
    if (result.empty()) return fail(InvalidArgument("a result is empty"));
    body_.rets.push_back(take(result.endpoint()));
  }
  for (Node* node : nodes) {
    if (!HasSideEffect(node->op())) continue;
    stateful_ = true;
    body_.control_rets.push_back(node);
  }
  return outer_.ok();
}

void FunctionBuilder::ShareCaptured(std::vector<Endpoint>* tensors) {
  const size_t own = body_.args.size() - captured_.size();
  std::vector<Node*> args(body_.args.begin(), body_.args.begin() + static_cast<std::ptrdiff_t>(own));
  std::vector<Node*> captured(body_.args.begin() + static_cast<std::ptrdiff_t>(own), body_.args.end());
  for (const Endpoint& e : captured_) {
    if (std::find(tensors->begin(), tensors->end(), e) == tensors->end()) tensors->push_back(e);
  }
  for (const Endpoint& e : *tensors) {
    const auto it = std::find(captured_.begin(), captured_.end(), e);
    if (it != captured_.end()) {
      args.push_back(captured[it - captured_.begin()]);
    } else {
      Node* arg = AddArg(BaseType(e.dtype()), e.shape());
      if (arg == nullptr) return;
      args.push_back(arg);
    }
  }
  body_.args = std::move(args);
  captured_ = *tensors;
}

void FunctionBuilder::ReturnCaptured() {
  for (size_t i = body_.args.size() - captured_.size(); i < body_.args.size(); ++i) {
    body_.rets.push_back(body_.args[i]->output(0));
  }
}

std::vector<FunctionArg> FunctionBuilder::results() const {
  std::vector<FunctionArg> results;
  for (const Endpoint& e : body_.rets) results.push_back({BaseType(e.dtype()), e.shape()});
  return results;
}

void FunctionBuilder::AddToLibrary() {
  // A non-owning view of the body while the definition is made.
  FunctionBody view;
  view.name = body_.name;
  view.graph.reset(scope_.graph());
  view.args = body_.args;
  view.rets = body_.rets;
  view.control_rets = body_.control_rets;
  StatusOr<pb::FunctionDef> def = DefineFunction(view);
  view.graph.release();
  if (!def.ok()) {
    outer_.UpdateStatus(def.status());
    return;
  }
  pb::FunctionDefLibrary* library = outer_.graph()->mutable_library();
  // Functions that the body defined.
  for (const pb::FunctionDef& f : scope_.graph()->library().function()) {
    if (outer_.graph()->FindFunction(f.signature().name()) == nullptr) {
      *outer_.graph()->mutable_library()->add_function() = f;
    }
  }
  library = outer_.graph()->mutable_library();
  *library->add_function() = *std::move(def);
}

std::string UniqueFunctionName(const Scope& scope, absl::string_view name) {
  const std::string& within = api_internal::StateOf(scope).function_name;
  const std::string base = absl::StrCat(
      within.empty() ? "__" : within, within.empty() ? "" : "_",
      absl::StrReplaceAll(absl::StrCat(scope.prefix(), scope.prefix().empty() ? "" : "_", name), {{"/", "_"}}));
  std::string unique = base;
  for (int i = 1; scope.graph()->FindFunction(unique) != nullptr; ++i) unique = absl::StrCat(base, "_", i);
  return unique;
}

std::vector<Output> AsOutputs(const Scope& scope, const std::vector<Endpoint>& tensors) {
  std::vector<Output> outputs;
  for (const Endpoint& e : tensors) outputs.emplace_back(scope, e);
  return outputs;
}

pb::NameAttrList FunctionName(const std::string& name) {
  pb::NameAttrList list;
  list.set_name(name);
  return list;
}

}  // namespace api_internal

}  // namespace millrace
