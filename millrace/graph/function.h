// Instantiation of the functions in a graph's library.
//
// A FunctionDef has arguments, nodes that name each other's outputs as "node:output:index", and attrs that its nodes
// may refer to ("$T"). Everything here works on one instantiation, with given attrs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/graph.h"

namespace millrace {

// The body of a function, instantiated with given attrs, as plain NodeDefs: inputs are "node", "node:1" and "^node",
// and an argument is referred to as a node of that name.
struct FlatFunction {
  std::string name;
  std::vector<std::string> arg_names;  // one per tensor; a list argument has several
  std::vector<DType> arg_types;
  std::vector<const AttrMap*> arg_attrs;  // owned by the FunctionDef; null if the argument has none
  std::vector<pb::NodeDef> nodes;
  std::vector<std::string> rets;  // "node:index"
  std::vector<DType> ret_types;
  std::vector<std::string> control_rets;
};

// INVALID_ARGUMENT or NOT_FOUND, naming the function, its node and the problem: a missing attr, an input that does not
// exist in the body, an unknown op. `graph` holds the library.
StatusOr<FlatFunction> FlattenFunction(const Graph& graph, const pb::FunctionDef& def, const AttrMap& attrs);

// The same as a Graph, with _Arg nodes as arguments. It shares the library.
struct FunctionBody {
  std::string name;
  std::unique_ptr<Graph> graph;
  std::vector<Node*> args;
  std::vector<Endpoint> rets;
  std::vector<Node*> control_rets;
};
StatusOr<FunctionBody> InstantiateFunction(const Graph& graph, const FlatFunction& flat);
// By name: a function of the library, or an op, which is treated as a function of one node.
StatusOr<FunctionBody> InstantiateFunction(const Graph& graph, const pb::NameAttrList& function);
// NOT_FOUND if the library has no such function.
StatusOr<FlatFunction> FlattenFunction(const Graph& graph, const pb::NameAttrList& function);

// The inverse of InstantiateFunction.
FlatFunction FlattenBody(const FunctionBody& body);
// The body as a FunctionDef named body.name. Its types are fixed: it has no attrs.
StatusOr<pb::FunctionDef> DefineFunction(const FunctionBody& body);

// The gradient of a function: takes its arguments and the gradients of its results, and returns the gradients of its
// arguments, zeros where there are none.
StatusOr<FunctionBody> GradientFunction(const Graph& graph, const pb::NameAttrList& function);

// Nodes of a body that must run even if no result depends on them: its control outputs or, if it declares none, its
// stateful nodes.
std::vector<Node*> SideEffects(const FunctionBody& body);
bool HasSideEffect(const OpSchema& op);

// A function's signature as an op schema.
StatusOr<OpSchema> SignatureSchema(const pb::OpDef& signature);

// Checks that do not depend on attrs: unique names, inputs that exist, a result for every output. Ops are not looked
// up.
Status CheckFunction(const pb::FunctionDef& def);

// Converts a node whose op is a function's name to a call node of that function, and back.
Status CallByName(const pb::FunctionDef& function, pb::NodeDef* def);
bool IsCalledByName(const Node& node);
// A client's own node is none of these, whatever attrs it has.
void ForgetCallByName(pb::NodeDef* def);
void NameFunctionAsOp(pb::NodeDef* def);

}  // namespace millrace
