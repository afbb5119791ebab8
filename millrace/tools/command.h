// The commands of `millrace`, one file each.
#pragma once

#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "millrace/base/status.h"

namespace millrace {

std::function<int()> AddBenchNet(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddCheckpoint(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddDashboard(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddEndWithJob(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddHealth(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddLaunch(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddManifest(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddPlace(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddPlan(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddSavedModel(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddServe(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddStatus(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);

// Says on stderr why a command failed, and returns the exit code.
inline int Fail(const char* command, const Status& status, int code) {
  std::cerr << "millrace " << command << ": " << status.message() << "\n";
  return code;
}

}  // namespace millrace
