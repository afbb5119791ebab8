// cluster_probe: a client program for tests of the `millrace` command.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

int Fail(const Status& status) {
  std::cerr << "cluster_probe: " << status << std::endl;
  return 1;
}

// Runs the step that fetches `fetch` and prints it.
int RunStep(const SessionOptions& options, const GraphBuilder& b, const std::string& fetch) {
  if (!b.ok()) return Fail(b.status());
  auto session = Session::Create(options);
  if (!session.ok()) return Fail(session.status());
  if (Status status = (*session)->Extend(*b.graph()); !status.ok()) return Fail(status);
  const auto values = (*session)->Run({fetch});
  if (!values.ok()) return Fail(values.status());
  if ((*values)[0].dtype() == DType::kString) {
    std::cout << (*values)[0].scalar<std::string>() << std::endl;
  } else {
    std::cout << (*values)[0].scalar<float>() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;  // NOLINT
  CLI::App app("Runs one step at a server, for tests of the millrace command.");
  SessionOptions options;
  std::vector<std::string> devices = {"", ""};
  std::string path;
  int sessions = 1, nodes = 0;
  app.add_option("--target", options.target)->required();
  app.add_option("--tls_cert", options.tls.certificate);
  app.add_option("--tls_key", options.tls.key);
  app.add_option("--tls_ca", options.tls.authority);
  app.require_subcommand(1);
  auto* multiply =
      app.add_subcommand("multiply", "multiplies a factor on the first device by one on the second; the result is 15");
  multiply->add_option("devices", devices)->expected(2)->required();
  auto* block =
      app.add_subcommand("block", "blocks: dequeues from an empty queue on the first device, for a node on the second");
  block->add_option("devices", devices)->expected(2)->required();
  auto* read = app.add_subcommand("read", "reads a file at the server");
  read->add_option("path", path)->required();
  auto* leave = app.add_subcommand("leave", "opens sessions and exits without closing them");
  leave->add_option("sessions", sessions)->required();
  leave->add_option("--nodes", nodes, "number of additional nodes in each graph");
  CLI11_PARSE(app, argc, argv);

  Graph graph;
  GraphBuilder b(&graph);
  b.device = devices[0];
  if (block->parsed()) {
    const AttrList types = {{"component_types", std::vector<DType>{DType::kFloat}}};
    AttrList attrs = types;
    attrs.push_back({"shared_name", "numbers"});
    const Endpoint element = b.Op("QueueDequeueV2", {b.Op("FIFOQueueV2", {}, attrs, "queue")}, types, "take");
    b.device = devices[1];
    b.Op("Identity", {element}, {}, "y");
    return RunStep(options, b, "y");
  }
  if (read->parsed()) {
    b.Op("ReadFile", {b.Const(Tensor::Scalar<std::string>(path))}, {}, "y");
    return RunStep(options, b, "y");
  }
  const Endpoint x = b.Const(Tensor::Scalar(3.f), "x");
  b.device = devices[1];
  b.Op("Mul", {x, b.Const(Tensor::Scalar(5.f), "w")}, {}, "y");
  if (multiply->parsed()) return RunStep(options, b, "y");
  for (int i = 0; i < nodes; ++i) b.AddNode("NoOp", {}, {}, absl::StrCat("n", i));
  for (int i = 0; i < sessions; ++i) {
    auto session = Session::Create(options);
    if (!session.ok()) return Fail(session.status());
    if (Status status = (*session)->Extend(graph); !status.ok()) return Fail(status);
    session->release();  // as a crash would
  }
  _exit(0);
}
