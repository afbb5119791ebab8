// While and For: run a function again and again.
#include "millrace/graph/op_schema.h"
#include "millrace/ops/functional/functional_shapes.h"

namespace millrace {
namespace {

MILLRACE_OP(While)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 0")
    .Attr("cond: func")
    .Attr("body: func")
    .Attr("output_shapes: list(shape) = []")
    .Attr("parallel_iterations: int = 10")
    .Stateful()
    .Shape(DeclaredShapes)
    .Summary("Runs body on its own results as long as cond holds.");

MILLRACE_OP(StatelessWhile)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 0")
    .Attr("cond: func")
    .Attr("body: func")
    .Attr("output_shapes: list(shape) = []")
    .Attr("parallel_iterations: int = 10")
    .Shape(DeclaredShapes)
    .Summary("While, with functions that change no state.");

MILLRACE_OP(_While)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 0")
    .Attr("cond: func")
    .Attr("body: func")
    .Stateful()
    .Shape(DeclaredShapes)
    .Summary("An old form of While.");

MILLRACE_OP(For)
    .Input("start: int32")
    .Input("limit: int32")
    .Input("delta: int32")
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 0")
    .Attr("body: func")
    .Shape(DeclaredShapes)
    .NotDifferentiable()
    .Summary("Runs body on each number from start to limit and on its own results.");

}  // namespace
}  // namespace millrace
