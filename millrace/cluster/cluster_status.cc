#include "millrace/cluster/cluster_status.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/status_service.h"
#include "millrace/proto/worker.pb.h"

namespace millrace {
namespace {

// The answers to some questions, each in its own place.
class Questions : public std::enable_shared_from_this<Questions> {
 public:
  Questions(net::Transport* transport, absl::Duration timeout) : transport_(transport), timeout_(timeout) {}

  std::vector<TaskView> Ask(std::vector<TaskView> tasks) {
    {
      MutexLock lock(&mu_);
      pending_ = tasks.size();
    }
    tasks_ = std::move(tasks);
    for (const TaskView& task : tasks_) channels_.push_back(transport_->Connect(task.address));
    for (size_t i = 0; i < tasks_.size(); ++i) AskStatus(i);
    {
      MutexLock lock(&mu_);
      while (pending_ > 0) answered_.Wait(&mu_);
    }
    channels_.clear();  // not on a thread that brings an answer
    return std::move(tasks_);
  }

 private:
  void Call(size_t i, const std::string& method, absl::AnyInvocable<void(StatusOr<net::Bytes>)> then) {
    channels_[i]->Call(method, net::Bytes(), {.timeout = timeout_},
                       [self = shared_from_this(), then = std::move(then)](StatusOr<net::Bytes> bytes) mutable { then(std::move(bytes)); });
  }

  void AskStatus(size_t i) {
    Call(i, StatusService::kMethod, [this, i](StatusOr<net::Bytes> bytes) {
      if (absl::IsUnimplemented(bytes.status())) return AskTensorFlow(i);
      TaskView& task = tasks_[i];
      task.answer = bytes.status();
      if (bytes.ok()) task.answer = net::Parse(*bytes, &task.status);
      if (task.answer.ok()) task.task = task.status.task();
      OnAnswer();
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
      OnAnswer();
    });
  }

  void OnAnswer() {
    MutexLock lock(&mu_);
    if (--pending_ == 0) answered_.SignalAll();
  }

  net::Transport* const transport_;
  const absl::Duration timeout_;
  std::vector<TaskView> tasks_;  // each written by its own answer
  std::vector<std::shared_ptr<net::Channel>> channels_;
  Mutex mu_;
  CondVar answered_;
  size_t pending_ ABSL_GUARDED_BY(mu_) = 0;
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

std::vector<TaskView> AskTasks(net::Transport* transport, std::vector<TaskView> tasks, absl::Duration timeout) {
  if (tasks.empty()) return tasks;
  return std::make_shared<Questions>(transport, timeout)->Ask(std::move(tasks));
}

}  // namespace millrace
