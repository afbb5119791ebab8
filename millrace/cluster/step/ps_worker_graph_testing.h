// A graph over a worker and a ps, and its parts. For tests only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/partition.h"

namespace millrace {

inline constexpr char kWorker[] = "/job:worker/replica:0/task:0/device:CPU:0";
inline constexpr char kPs[] = "/job:ps/replica:0/task:0/device:CPU:0";
inline constexpr char kHome[] = "/job:worker/replica:0/task:0";

// All tensors are of floats. The client's session is at the worker, kHome.
class PsWorkerGraphTest : public ::testing::Test {
 protected:
  Endpoint On(const char* device, Endpoint e) {
    graph_->SetAssignedDevice(e.node, device);
    return e;
  }
  // The handle of a variable at the ps; -1 elements means an unknown number.
  Endpoint Variable(const std::string& name, int64_t elements = 2) {
    const AttrList attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape({elements})}, {"shared_name", name}};
    return On(kPs, b_.Op("VarHandleOp", {}, attrs, name));
  }
  // Reads the variable NAME by the node NAME/read.
  Endpoint Read(Endpoint handle) {
    const Endpoint read =
        On(kPs, b_.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}, handle.node->name() + "/read"));
    graph_->SetOutputShape(read.node, 0, handle.node->AttrOr<PartialShape>("shape", PartialShape()));
    return read;
  }
  Endpoint Unary(const char* device, const char* op, Endpoint x, const std::string& name) {
    const Endpoint y = On(device, b_.Op(op, {x}, {}, name));
    graph_->SetOutputShape(y.node, 0, x.node->output_shape(x.index));
    return y;
  }
  // Partitions the graph, which no longer exists afterwards.
  void CutIntoParts() {
    EXPECT_TRUE(b_.ok()) << b_.status();
    parts_ = PartitionGraph(std::move(graph_), {.incarnations = {{kWorker, 1}, {kPs, 2}}, .home_task = kHome}).value();
  }

  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  GraphBuilder b_{graph_.get()};
  std::vector<Part> parts_;
};

}  // namespace millrace
