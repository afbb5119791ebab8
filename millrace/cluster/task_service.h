// The services of a task on the network: TensorFlow's master and worker services, and Millrace's status service.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/cluster/master/master.h"
#include "millrace/cluster/watch/status_service.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/net/transport.h"

namespace millrace {

// Decodes requests, calls the master or the worker, and encodes answers. Thread-safe.
class TaskService : public net::Service {
 public:
  TaskService(std::shared_ptr<Master> master, std::shared_ptr<Worker> worker, Clock* clock);

  StatusService& status() { return status_; }
  // Serves the methods of another service too, for tasks. Before the listener starts.
  void Add(net::Service* service);

  const std::vector<std::string>& methods() const override { return methods_; }
  void OnCall(int method, std::shared_ptr<net::IncomingCall> call) override;

 private:
  using Call = std::shared_ptr<net::IncomingCall>;
  using Handler = void (TaskService::*)(Call call);
  // A method of TensorFlow's, "MasterService/RunStep". AddForTasks: clients may not call it.
  void Add(const std::string& method, Handler handler);
  void AddForTasks(const std::string& method, Handler handler);
  void AddMethod(std::string method, Handler handler, bool for_tasks);
  CallControl ControlOf(const Call& call) const;
  // Finds the session; the call keeps it from expiring.
  StatusOr<std::shared_ptr<MasterSession>> Find(const std::string& handle, const Call& call) const;

  void CreateSession(Call call);
  void ExtendSession(Call call);
  void PartialRunSetup(Call call);
  void RunStep(Call call);
  void CloseSession(Call call);
  void ListDevices(Call call);
  void Reset(Call call);
  void MakeCallable(Call call);
  void RunCallable(Call call);
  void ReleaseCallable(Call call);

  void GetStatus(Call call);
  void CreateWorkerSession(Call call);
  void DeleteWorkerSession(Call call);
  void RegisterGraph(Call call);
  void DeregisterGraph(Call call);
  void RunGraph(Call call);
  void CleanupGraph(Call call);
  void CleanupAll(Call call);
  void RecvTensor(Call call);
  void RecvTensors(Call call);
  void CompleteGroup(Call call);
  void CompleteInstance(Call call);
  void GetStepSequence(Call call);
  void RecvBuf(Call call);
  void Logging(Call call);
  void Tracing(Call call);

  void GetTaskStatus(Call call);

  const std::shared_ptr<Master> master_;
  const std::shared_ptr<Worker> worker_;
  Clock* const clock_;
  StatusService status_;
  std::vector<std::string> methods_;
  std::vector<Handler> handlers_;  // null for a method of another service
  struct Foreign {
    net::Service* service;
    int method;
  };
  std::vector<Foreign> foreign_;  // by method, from the first of another service on
  std::vector<bool> for_tasks_;
};

}  // namespace millrace
