// The peer's end of a line: runs a part, and exchanges tensors with home on the call that runs it.
#pragma once

#include <memory>

#include "millrace/cluster/worker/part_execution.h"
#include "millrace/cluster/worker/worker_interface.h"
#include "millrace/net/transport.h"

namespace millrace {

// One such call. Keeps itself alive until it is answered.
class StreamedPart : public std::enable_shared_from_this<StreamedPart> {
 public:
  StreamedPart(std::shared_ptr<Worker> worker, std::shared_ptr<net::IncomingCall> call)
      : worker_(std::move(worker)), call_(std::move(call)) {}

  // Reads the request, runs the part and answers.
  void Serve(const CallControl& control);

 private:
  // Prepares the run: opens the line and delivers the feeds.
  StatusOr<PartRun> Begin(const CallControl& control, StepStart* start);
  void End(PartResult result);

  const std::shared_ptr<Worker> worker_;
  const std::shared_ptr<net::IncomingCall> call_;
  std::shared_ptr<RegisteredGraph> graph_;
  RefPtr<StepRendezvous> rendezvous_;
  int64_t step_id_ = 0;
  bool wants_graph_ = false;
};

}  // namespace millrace
