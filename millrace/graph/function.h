// Functions of a graph's library, made into nodes and graphs.
//
// A FunctionDef has arguments, nodes that name each other's outputs as "node:output:index", and attrs that its nodes
// may refer to ("$T"). Everything here works on one use of it, with the attrs given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/graph.h"

namespace millrace {

// The body of a function under given attrs as plain NodeDefs: inputs are "node", "node:1" and "^node", and an
// argument is a node of its name.
struct FlatFunction {
  std::string name;
  std::vector<std::string> arg_names;  // one for each tensor; a list argument has several
  std::vector<DType> arg_types;
  std::vector<const AttrMap*> arg_attrs;  // null for none; of the FunctionDef
  std::vector<pb::NodeDef> nodes;
  std::vector<std::string> rets;       // "node:index"
  std::vector<DType> ret_types;
  std::vector<std::string> control_rets;
};

// INVALID_ARGUMENT or NOT_FOUND name the function, its node and what is wrong: an attr that is missing, an input that
// is no output of the body, an op that does not exist. `graph` has the library.
StatusOr<FlatFunction> FlattenFunction(const Graph& graph, const pb::FunctionDef& def, const AttrMap& attrs);

// The same as a graph. Its arguments are _Arg nodes. It shares the library.
struct FunctionBody {
  std::string name;
  std::unique_ptr<Graph> graph;
  std::vector<Node*> args;
  std::vector<Endpoint> rets;
  std::vector<Node*> control_rets;
};
StatusOr<FunctionBody> InstantiateFunction(const Graph& graph, const FlatFunction& flat);
// By name: a function of the library, or an op, which counts as a function of one node.
StatusOr<FunctionBody> InstantiateFunction(const Graph& graph, const pb::NameAttrList& function);
// NOT_FOUND when the library has no such function.
StatusOr<FlatFunction> FlattenFunction(const Graph& graph, const pb::NameAttrList& function);

// Back from a graph.
FlatFunction FlattenBody(const FunctionBody& body);
// As a definition for a library, under body.name. The types are fixed: it has no attrs.
StatusOr<pb::FunctionDef> DefineFunction(const FunctionBody& body);

// The gradient of a function: takes its arguments and the gradients of its results, gives those of its
// arguments; zeros where there are none.
StatusOr<FunctionBody> GradientFunction(const Graph& graph, const pb::NameAttrList& function);

// Nodes of a body that must run although no result needs them: its control results, and where it declares
// none, what changes state.
std::vector<Node*> SideEffects(const FunctionBody& body);
bool HasSideEffect(const OpSchema& op);

// What a function takes and gives, as a schema.
StatusOr<OpSchema> SignatureSchema(const pb::OpDef& signature);

// What can be said of a function before its attrs are known: names used once, inputs that exist, a result for every
// output. Ops are not looked up.
Status CheckFunction(const pb::FunctionDef& def);

// A node whose op is a function's name, as a call of that function, and back.
Status CallByName(const pb::FunctionDef& function, pb::NodeDef* def);
bool IsCalledByName(const Node& node);
void NameFunctionAsOp(pb::NodeDef* def);

}  // namespace millrace
