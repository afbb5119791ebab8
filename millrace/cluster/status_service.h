// What a task tells about itself.
#pragma once

#include <memory>

#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/master.h"
#include "millrace/cluster/worker.h"
#include "millrace/proto/status.pb.h"

namespace millrace {

// Thread-safe. Waits for nothing that a step or the making of a session may hold for long.
class StatusService {
 public:
  static constexpr char kMethod[] = "/millrace.StatusService/GetStatus";

  StatusService(std::shared_ptr<Master> master, std::shared_ptr<Worker> worker, Clock* clock);
  // With the port that the system chose; before, the cluster as the worker knows it.
  void set_cluster(const ClusterSpec& cluster);
  TaskStatus Report() const;

 private:
  void AddSessions(TaskStatus* status) const;
  void AddSteps(TaskStatus* status) const;
  // What it takes of the cores and sends to others.
  void AddTraffic(TaskStatus* status) const;

  const std::shared_ptr<Master> master_;
  const std::shared_ptr<Worker> worker_;
  Clock* const clock_;
  mutable Mutex mu_;
  ClusterSpec cluster_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
