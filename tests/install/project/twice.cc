// Doubles its argument by way of a graph.
#include <cstdio>
#include <cstdlib>

#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

int main(int argc, char** argv) {
  millrace::Graph graph;
  millrace::GraphBuilder b(&graph);
  const millrace::Endpoint x = b.Scalar<float>(argc > 1 ? std::atof(argv[1]) : 0);
  const millrace::Endpoint y = b.Mul(x, b.Scalar<float>(2));
  if (!b.ok()) {
    std::fprintf(stderr, "%s\n", b.status().ToString().c_str());
    return 1;
  }
  auto session = millrace::Session::Create().value();
  if (const auto status = session->Extend(graph); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  const auto result = session->Run({y.name()});
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%g\n", (*result)[0].scalar<float>());
}
