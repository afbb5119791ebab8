// The specification of a cluster: its jobs, their tasks and the tasks' addresses.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/proto/config.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

struct TaskId {
  std::string job;
  int index = 0;

  // "/job:ps/replica:0/task:0".
  std::string name() const;
  // Parses a device name or a task name; INVALID_ARGUMENT if the job or the task is missing.
  static StatusOr<TaskId> Of(absl::string_view name);
  friend bool operator==(const TaskId&, const TaskId&) = default;
  friend auto operator<=>(const TaskId&, const TaskId&) = default;
};

// A value type. Every job has at least one task; addresses are "host:port", and no two tasks share one.
class ClusterSpec {
 public:
  using Tasks = std::map<int, std::string>;  // indices may have gaps

  ClusterSpec() = default;
  // ClusterSpec::Of({{"ps", {"a:1"}}, {"worker", {"b:1", "b:2"}}}).
  static StatusOr<ClusterSpec> Of(const std::map<std::string, std::vector<std::string>>& jobs);
  static StatusOr<ClusterSpec> OfTasks(std::map<std::string, Tasks> jobs);
  static StatusOr<ClusterSpec> FromDef(const pb::ClusterDef& def);
  // Parses the format of TensorFlow's flag, "ps|host:port;host:port,worker|host:port". An index that the job does not
  // have is left empty, "worker|;host:port" has task 1 only. Errors quote the malformed part.
  static StatusOr<ClusterSpec> Parse(absl::string_view text);

  pb::ClusterDef ToDef() const;
  std::string ToString() const;  // in the format of Parse
  const std::map<std::string, Tasks>& jobs() const { return jobs_; }
  std::vector<TaskId> tasks() const;
  bool Has(const TaskId& task) const;
  // NOT_FOUND lists the existing jobs, or the existing tasks of the job.
  StatusOr<std::string> Address(const TaskId& task) const;
  // Changes the address of a task, for a port that was chosen by the system.
  void SetAddress(const TaskId& task, std::string address) { jobs_[task.job][task.index] = std::move(address); }

  // Equal jobs with the same tasks at the same addresses, as they were written.
  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;

 private:
  std::map<std::string, Tasks> jobs_;
};

}  // namespace millrace
