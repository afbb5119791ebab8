// A task's status report.
#pragma once

#include <memory>

#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/master/master.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/proto/status.pb.h"

namespace millrace {

// Thread-safe. Takes no lock that a step or the creation of a session may hold for long.
class StatusService {
 public:
  static constexpr char kMethod[] = "/millrace.StatusService/GetStatus";

  StatusService(std::shared_ptr<Master> master, std::shared_ptr<Worker> worker, Clock* clock);
  // Sets the cluster with the port that the system chose. Before that, reports the cluster as the worker knows it.
  void set_cluster(const ClusterSpec& cluster);
  TaskStatus Report() const;

 private:
  void AddSessions(TaskStatus* status) const;
  void AddSteps(TaskStatus* status) const;
  void AddVariables(TaskStatus* status) const;
  // Adds CPU usage and traffic to peers.
  void AddTraffic(TaskStatus* status) const;

  const std::shared_ptr<Master> master_;
  const std::shared_ptr<Worker> worker_;
  Clock* const clock_;
  mutable Mutex mu_;
  ClusterSpec cluster_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
