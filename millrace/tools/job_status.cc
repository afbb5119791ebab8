#include "millrace/tools/job_status.h"

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "millrace/launch/job_report.h"
#include "millrace/launch/job_socket.h"

namespace millrace {

std::shared_ptr<const TlsCredentials> CredentialsOfJob(const std::string& address, absl::Duration timeout) {
  for (const int pid : launch::RunningJobs()) {
    const StatusOr<std::string> answer = launch::AskJob(pid, timeout);
    if (!answer.ok()) continue;
    const StatusOr<launch::JobReport> report = launch::JobReport::FromJson(*answer);
    if (!report.ok() || !report->credentials.has_value()) continue;
    for (const launch::JobReport::Task& task : report->tasks) {
      if (task.address == address) return std::make_shared<const TlsCredentials>(*report->credentials);
    }
  }
  return nullptr;
}

int ShowJobs(int job, absl::Duration timeout, bool json) {
  const std::vector<int> pids = job != 0 ? std::vector<int>{job} : launch::RunningJobs();
  std::vector<std::string> answers;
  bool all = true;
  for (const int pid : pids) {
    StatusOr<std::string> answer = launch::AskJob(pid, timeout);
    if (!answer.ok()) {
      // A job that has ended meanwhile is skipped, unless it was asked for by its pid.
      if (job == 0 && absl::IsNotFound(answer.status())) continue;
      std::cerr << "millrace status: " << answer.status().message() << "\n";
      all = false;
      continue;
    }
    if (json) {
      answers.push_back(launch::JobReport::WithoutCredentials(*answer));
      continue;
    }
    const StatusOr<launch::JobReport> report = launch::JobReport::FromJson(*answer);
    if (!report.ok()) {
      std::cerr << "millrace status: " << report.status().message() << "\n";
      all = false;
      continue;
    }
    answers.push_back(report->ToText());
  }
  if (json) {
    std::cout << "{\"jobs\": [" << absl::StrJoin(answers, ",\n") << "]}\n" << std::flush;
  } else if (answers.empty() && all) {
    std::cout
        << "no job of `millrace launch` is running on this machine; use --target grpc://host:port to ask a server\n"
        << std::flush;
  } else {
    std::cout << absl::StrJoin(answers, "\n") << std::flush;
  }
  return all ? 0 : 1;
}

}  // namespace millrace
