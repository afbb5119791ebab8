#include "millrace/cluster/watch/cluster_status.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "millrace/base/fan_in.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/watch/status_service.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport.h"
#include "millrace/proto/worker.pb.h"

namespace millrace {
namespace {

// Collects the answers to concurrent requests.
class Questions : public std::enable_shared_from_this<Questions> {
 public:
  Questions(net::Transport* transport, absl::Duration timeout) : transport_(transport), timeout_(timeout) {}

  std::vector<TaskView> Ask(std::vector<TaskView> tasks) {
    tasks_ = std::move(tasks);
    all_.emplace(tasks_.size(), [this](Status) { answered_.Notify(); });
    for (const TaskView& task : tasks_) channels_.push_back(transport_->Connect(task.address));
    for (size_t i = 0; i < tasks_.size(); ++i) AskStatus(i);
    answered_.Wait();
    channels_.clear();  // not on a thread that delivers an answer
    return std::move(tasks_);
  }

 private:
  void Call(size_t i, const std::string& method, absl::AnyInvocable<void(StatusOr<net::Bytes>)> then) {
    channels_[i]->Call(method, net::Bytes(), {.timeout = timeout_},
                       [self = shared_from_this(), then = std::move(then)](StatusOr<net::Bytes> bytes) mutable {
                         then(std::move(bytes));
                       });
  }

  void AskStatus(size_t i) {
    Call(i, StatusService::kMethod, [this, i](StatusOr<net::Bytes> bytes) {
      if (absl::IsUnimplemented(bytes.status())) return AskTensorFlow(i);
      TaskView& task = tasks_[i];
      task.answer = bytes.status();
      if (bytes.ok()) task.answer = net::Parse(*bytes, &task.status);
      if (task.answer.ok()) task.task = task.status.task();
      all_->Arrive();
    });
  }

  void AskTensorFlow(size_t i) {
    Call(i, "/tensorflow.WorkerService/GetStatus", [this, i](StatusOr<net::Bytes> bytes) {
      TaskView& task = tasks_[i];
      pb::GetStatusResponse response;
      task.answer = bytes.status();
      if (bytes.ok()) task.answer = net::Parse(*bytes, &response);
      task.is_tensorflow = task.answer.ok();
      for (const pb::DeviceAttributes& device : response.device_attributes()) {
        TaskStatus::Device* entry = task.status.add_devices();
        entry->set_name(device.name());
        entry->set_type(device.device_type());
        entry->set_incarnation(device.incarnation());
        if (const StatusOr<TaskId> id = TaskId::Of(device.name()); id.ok() && task.task.empty()) task.task = id->name();
      }
      all_->Arrive();
    });
  }

  net::Transport* const transport_;
  const absl::Duration timeout_;
  std::vector<TaskView> tasks_;  // each element is written by its own answer
  std::vector<std::shared_ptr<net::Channel>> channels_;
  std::optional<FanIn> all_;
  Notification answered_;
};

}  // namespace

std::vector<TaskView> AskCluster(net::Transport* transport, const std::string& address, absl::Duration timeout) {
  std::vector<TaskView> views = std::make_shared<Questions>(transport, timeout)->Ask({{.address = address}});
  std::vector<TaskView> others;
  for (const TaskStatus::ClusterTask& task : views[0].status.cluster()) {
    if (task.task() != views[0].task) others.push_back({.task = task.task(), .address = task.address()});
  }
  if (others.empty()) return views;
  std::vector<TaskView> answers = std::make_shared<Questions>(transport, timeout)->Ask(std::move(others));
  for (TaskView& answer : answers) views.push_back(std::move(answer));
  return views;
}

std::vector<TaskView> AskCluster(const std::string& address, absl::Duration timeout,
                                 std::shared_ptr<const TlsCredentials> tls) {
  const std::unique_ptr<net::Transport> transport = net::NewGrpcTransport({.tls = std::move(tls)});
  return AskCluster(transport.get(), address, timeout);
}

std::vector<TaskView> AskTasks(net::Transport* transport, std::vector<TaskView> tasks, absl::Duration timeout) {
  if (tasks.empty()) return tasks;
  return std::make_shared<Questions>(transport, timeout)->Ask(std::move(tasks));
}

}  // namespace millrace
