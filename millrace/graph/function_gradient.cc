#include "millrace/graph/function.h"
#include "millrace/graph/gradient.h"

namespace millrace {

StatusOr<FunctionBody> GradientFunction(const Graph& graph, const pb::NameAttrList& function) {
  // A gradient declared in the library takes precedence over a derived one.
  if (const std::string declared = graph.FindGradientFunction(function.name()); !declared.empty()) {
    pb::NameAttrList gradient = function;
    gradient.set_name(declared);
    return InstantiateFunction(graph, gradient);
  }
  MR_ASSIGN_OR_RETURN(FunctionBody body, InstantiateFunction(graph, function));
  Graph* const g = body.graph.get();
  GradientOptions options;
  std::vector<Endpoint> xs;
  for (Node* arg : body.args) xs.push_back(arg->output(0));
  for (const Endpoint& ret : body.rets) {
    NodeSpec spec;
    spec.name = g->UniqueName("grad");
    spec.op = "_Arg";
    spec.attrs["T"].set_type(static_cast<pb::DataType>(BaseType(ret.dtype())));
    spec.attrs["index"].set_i(static_cast<int64_t>(body.args.size()));
    MR_ASSIGN_OR_RETURN(Node * arg, g->AddNode(std::move(spec)));
    body.args.push_back(arg);
    options.grad_ys.push_back(arg->output(0));
  }
  MR_ASSIGN_OR_RETURN(const std::vector<Grad> grads, AddGradients(g, body.rets, xs, options));
  GraphBuilder b(g);
  b.prefix = options.name;
  body.rets.clear();
  for (size_t i = 0; i < xs.size(); ++i) {
    body.rets.push_back(grads[i].IsNone() ? b.ZerosLike(xs[i]) : Densify(b, grads[i]));
  }
  MR_RETURN_IF_ERROR(b.status());
  body.name = "gradient of " + body.name;
  return body;
}

}  // namespace millrace
