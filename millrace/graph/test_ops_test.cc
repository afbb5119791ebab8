// Small ops for the tests of this folder, which needs none of the real ones.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {
namespace {

Status AddGradient(GradientContext& c) {
  c.SetBroadcastGrads(0, c.grad(), 1, c.grad());
  return c.status();
}

Status PassGradient(GradientContext& c) {
  c.set_input_grad(0, c.raw_grad());
  return c.status();
}

// Rows 0 and 2 of the gradient, as slices.
Status RowsGradient(GradientContext& c) {
  Endpoint indices = c.Const(Tensor::Of<int32_t>({0, 2}));
  c.set_input_grad(0, Grad::Slices(c.grad(), indices, c.Shape(c.input(0))));
  return c.status();
}

MILLRACE_OP(TestSource).Output("y: T").Attr("T: type").Attr("shape: shape = { unknown_rank: true }").Shape(AttrShape);
MILLRACE_OP(TestAdd)
    .Input("a: T")
    .Input("b: T")
    .Output("sum: T")
    .Attr("T: numbertype")
    .Shape(BroadcastShape)
    .Gradient(AddGradient);
MILLRACE_OP(TestPass).Input("x: T").Output("y: T").Attr("T: type").Shape(UnchangedShape).Gradient(PassGradient);
MILLRACE_OP(TestRows).Input("x: T").Output("y: T").Attr("T: type").Shape(UnknownShape).Gradient(RowsGradient);
MILLRACE_OP(TestStop).Input("x: T").Output("y: T").Attr("T: type").Shape(UnchangedShape).NotDifferentiable();
MILLRACE_OP(TestNoGradient).Input("x: T").Output("y: T").Attr("T: type").Shape(UnchangedShape);
MILLRACE_OP(TestMany).Input("xs: N * T").Output("y: T").Attr("N: int >= 1").Attr("T: type");
MILLRACE_OP(TestStitch)
    .Input("indices: N * int32")
    .Input("data: N * T")
    .Output("y: T")
    .Attr("N: int >= 1")
    .Attr("T: type");
MILLRACE_OP(TestTuple).Input("xs: Tin").Output("ys: Tout").Attr("Tin: list(type) >= 0").Attr("Tout: list(type) = []");
MILLRACE_OP(TestTwoLists).Input("as: Ta").Input("bs: Tb").Attr("Ta: list(type)").Attr("Tb: list(type)").Stateful();
MILLRACE_OP(TestSplit).Input("x: T").Output("ys: N * T").Attr("N: int >= 1").Attr("T: type");
MILLRACE_OP(TestVariable).Output("ref: Ref(T)").Attr("T: type").Attr("shape: shape").Stateful().Shape(AttrShape);
MILLRACE_OP(TestAssign).Input("ref: Ref(T)").Input("value: T").Output("out: Ref(T)").Attr("T: type");
MILLRACE_OP(TestModes)
    .Output("y: float")
    .Attr("mode: {'LOW', 'HIGH'} = 'LOW'")
    .Attr("k: int >= 2 = 3")
    .Attr("strides: list(int) >= 2 = [1, 2]")
    .Attr("half: {float, half} = DT_HALF")
    .Attr("scale: float = 0.5")
    .Attr("on: bool = true")
    .Shape(ScalarShape);

}  // namespace
}  // namespace millrace
