#include "bench/large_graph.h"

#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"

namespace millrace::bench {
namespace {

namespace pb = ::tensorflow;

constexpr int kChains = 500;
constexpr int kLinks = 66;
constexpr int kIdentities = 998;

// Appends a node and returns its name.
std::string Add(pb::GraphDef& graph, const std::string& name, const char* op, const char* type_attr,
                std::initializer_list<std::string> inputs) {
  pb::NodeDef* node = graph.add_node();
  node->set_name(name);
  node->set_op(op);
  for (const std::string& input : inputs) node->add_input(input);
  (*node->mutable_attr())[type_attr].set_type(pb::DT_FLOAT);
  return name;
}

std::string AddConst(pb::GraphDef& graph, const std::string& name, float value) {
  Add(graph, name, "Const", "dtype", {});
  pb::TensorProto* tensor = (*graph.mutable_node(graph.node_size() - 1)->mutable_attr())["value"].mutable_tensor();
  tensor->set_dtype(pb::DT_FLOAT);
  tensor->mutable_tensor_shape();
  tensor->add_float_val(value);
  return name;
}

}  // namespace

pb::GraphDef LargeGraph() {
  pb::GraphDef graph;
  graph.mutable_versions()->set_producer(1882);
  std::string start = Add(graph, "x", "Placeholder", "dtype", {});
  (*graph.mutable_node(0)->mutable_attr())["shape"].mutable_shape();
  for (int i = 0; i < kIdentities; ++i) start = Add(graph, absl::StrCat("start/id_", i), "Identity", "T", {start});

  std::vector<std::string> ends;
  for (int c = 0; c < kChains; ++c) {
    std::string last = start;
    for (int i = 0; i < kLinks; ++i) {
      const std::string prefix = absl::StrCat("chain_", c, "/", i, "/");
      const std::string step = AddConst(graph, prefix + "step", 1e-5f * static_cast<float>(c * kLinks + i + 1));
      last = Add(graph, prefix + "tanh", "Tanh", "T", {Add(graph, prefix + "sum", "AddV2", "T", {last, step})});
    }
    ends.push_back(last);
  }
  Add(graph, "result", "AddN", "T", {});
  pb::NodeDef* result = graph.mutable_node(graph.node_size() - 1);
  for (const std::string& end : ends) result->add_input(end);
  (*result->mutable_attr())["N"].set_i(kChains);
  return graph;
}

}  // namespace millrace::bench
