// If and Case: run one of several functions.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/functional/functional_shapes.h"

namespace millrace {
namespace {

MILLRACE_OP(If)
    .Input("cond: Tcond")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tcond: type")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("then_branch: func")
    .Attr("else_branch: func")
    .Attr("output_shapes: list(shape) = []")
    .Stateful()
    .Shape(DeclaredShapes)
    .Summary("Runs then_branch or else_branch.");

MILLRACE_OP(StatelessIf)
    .Input("cond: Tcond")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tcond: type")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("then_branch: func")
    .Attr("else_branch: func")
    .Attr("output_shapes: list(shape) = []")
    .Shape(DeclaredShapes)
    .Summary("Runs then_branch or else_branch, which change no state.");

MILLRACE_OP(_If)
    .Input("cond: Tcond")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tcond: type")
    .Attr("Tin: list(type) >= 1")
    .Attr("Tout: list(type) >= 1")
    .Attr("then_branch: func")
    .Attr("else_branch: func")
    .Stateful()
    .Shape(DeclaredShapes)
    .Summary("An old form of If.");

MILLRACE_OP(Case)
    .Input("branch_index: int32")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("branches: list(func) >= 1")
    .Attr("output_shapes: list(shape) = []")
    .Stateful()
    .Shape(DeclaredShapes)
    .Summary("Runs the branch that branch_index names, out of range the last.");

MILLRACE_OP(StatelessCase)
    .Input("branch_index: int32")
    .Input("input: Tin")
    .Output("output: Tout")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tout: list(type) >= 0")
    .Attr("branches: list(func) >= 1")
    .Attr("output_shapes: list(shape) = []")
    .Shape(DeclaredShapes)
    .Summary("Case, with branches that change no state.");

}  // namespace
}  // namespace millrace
