// Sends recorded calls to a server again, and compares what it answers.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "millrace/net/transport.h"
#include "millrace/proto/master.pb.h"
#include "millrace/tensor/shape.h"
#include "tests/exchanges/exchange.h"

namespace millrace::exchanges {

// How near a number must be to the recorded one: |got - want| <= atol + rtol * |want|.
struct Tolerance {
  double rtol = 0;
  double atol = 0;
};

// Nodes of steps that were recorded with a trace, as the server says now.
struct Played {
  int exchanges = 0;
  int gpu_nodes = 0;
  int cpu_nodes = 0;
};

// One program's calls, in its order. What a server chooses itself (handles of sessions, callables and partial runs,
// versions of graphs) is replaced in later requests by what this server chose.
class Player {
 public:
  // `has_gpu`: the server has one. A traced node that asks for a GPU must then run there, but for those whose name
  // begins with "falls_back/", which must not.
  Player(net::Channel* server, Tolerance tolerance, bool has_gpu);

  // An error names the exchange, and the node or tensor that differs. The messages of errors are not compared.
  StatusOr<Played> Play(const std::vector<Exchange>& exchanges);

 private:
  Status PlayOne(const Exchange& exchange);
  template <typename Request, typename Response>
  Status Repeat(const Exchange& exchange);
  template <typename Request>
  Status Translate(Request* request);
  template <typename Response>
  Status Check(const Response& want, const Response& got);
  Status CheckPlaces(const pb::StepStats& recorded, const pb::StepStats& now);
  void NoteDevices(const pb::GraphDef& graph);

  net::Channel* const server_;
  const Tolerance tolerance_;
  const bool has_gpu_;
  Played played_;
  std::map<std::string, std::string> sessions_, partial_runs_;  // what was recorded, and what it is now
  std::map<int64_t, int64_t> callables_, versions_;
  std::set<std::string> ask_for_gpu_;  // names of nodes
};

// Makes a call and waits for its answer. DEADLINE_EXCEEDED after a minute.
StatusOr<net::Bytes> CallAndWait(net::Channel* server, const std::string& method, net::Bytes request);

}  // namespace millrace::exchanges
