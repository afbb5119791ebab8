// PartitionedCall and its kin: run a function.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/functional/functional_shapes.h"

namespace millrace {
namespace {

// Calls are expanded before gradients are taken of them; what is left calls itself, and so does its gradient.
Status CallGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const auto f, c.Attr<pb::NameAttrList>("f"));
  std::vector<Endpoint> inputs(c.node()->inputs().begin(), c.node()->inputs().end());
  std::vector<DType> types(c.node()->input_types().begin(), c.node()->input_types().end());
  for (int i = 0; i < c.num_outputs(); ++i) inputs.push_back(c.grad(i));
  pb::AttrValue function;
  *function.mutable_func() = f;
  Node* gradient = c.AddNode("SymbolicGradient", inputs, {{"f", function}, {"Tout", types}});
  if (gradient == nullptr) return c.status();
  for (int i = 0; i < c.num_inputs(); ++i) c.set_input_grad(i, gradient->output(i));
  return c.status();
}

MILLRACE_OP(PartitionedCall)
    .Input("args: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("f: func")
    .Attr("config: string = ''")
    .Attr("config_proto: string = ''")
    .Attr("executor_type: string = ''")
    .Shape(DeclaredShapes)
    .Gradient(CallGradient)
    .Summary("Runs a function that changes no state.");

MILLRACE_OP(StatefulPartitionedCall)
    .Input("args: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("f: func")
    .Attr("config: string = ''")
    .Attr("config_proto: string = ''")
    .Attr("executor_type: string = ''")
    .Stateful()
    .Shape(DeclaredShapes)
    .Gradient(CallGradient)
    .Summary("Runs a function.");

MILLRACE_OP(SymbolicGradient)
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 1")
    .Attr("Tout: list(type) >= 1")
    .Attr("f: func")
    .Shape(DeclaredShapes)
    .NotDifferentiable()
    .Summary("The gradient of a function: takes its arguments and the gradients of its results.");

MILLRACE_OP(RemoteCall)
    .Input("target: string")
    .Input("args: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 1")
    .Attr("Tout: list(type) >= 1")
    .Attr("f: func")
    .Stateful()
    .Shape(DeclaredShapes)
    .NotDifferentiable()
    .Summary("Runs a function on the device that target names.");

}  // namespace
}  // namespace millrace
