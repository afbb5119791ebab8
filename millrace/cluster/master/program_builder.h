// Compiles a signature to the parts of a step.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/cluster/master/master_program.h"
#include "millrace/cluster/step/step_edges.h"
#include "millrace/graph/partition.h"
#include "millrace/graph/placement.h"
#include "millrace/proto/config.pb.h"

namespace millrace {

// A task of a session with its devices.
struct SessionTask {
  const Peer* peer = nullptr;  // null for the master's own task
  std::string name;
  std::vector<pb::DeviceAttributes> devices;
  bool speaks_millrace = false;
};

struct ProgramBuilderOptions {
  std::vector<SessionTask> tasks = {};  // the master's own task first
  std::shared_ptr<WorkerSession> worker_session = nullptr;
  PassOptions passes = {};
  bool allow_soft_placement = false;
};

// Places the nodes of a session's graph and partitions a step's graph among the tasks. Immutable and thread-safe.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(ProgramBuilderOptions options);

  // Assigns a device to each node; see PlaceNodes for errors.
  Status Place(Graph* graph) const { return PlaceNodes(graph, placement_); }
  // Partitions the graph of a step and compiles the part at home. `remote` receives the graphs to register with peers,
  // each with the index of its part.
  StatusOr<std::shared_ptr<MasterProgram>> Build(std::unique_ptr<Graph> graph, const CallableSpec& spec,
                                                 std::vector<std::pair<int, pb::GraphDef>>* remote) const;

  // The first device of the master's own task.
  const std::string& home_device() const { return home_device_; }
  uint64_t home_incarnation() const { return partition_.incarnations.at(home_device_); }

 private:
  const SessionTask* FindTask(absl::string_view name) const;
  StatusOr<ProgramPart> PartAtHome(Part cut) const;
  StatusOr<ProgramPart> PartAtPeer(Part cut, const ClientNumbers& numbers, pb::GraphDef* graph) const;

  const ProgramBuilderOptions options_;
  std::string home_device_;
  PlacementOptions placement_;
  PartitionOptions partition_;  // the options that all signatures share
};

}  // namespace millrace
