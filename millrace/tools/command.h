// The commands of `millrace`, one file each.
#pragma once

#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "millrace/base/status.h"

namespace millrace {

// Adds a command and its flags to `app`. The returned function runs the command and returns the exit code.
using AddCommand = std::function<int()> (*)(CLI::App& app, CLI::App** command);

// `program` is the command line after `--`; it must outlive the app.
std::function<int()> AddLaunch(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddPlace(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddManifest(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddEndWithJob(CLI::App& app, CLI::App** command);
std::function<int()> AddHealth(CLI::App& app, CLI::App** command);
std::function<int()> AddBenchNet(CLI::App& app, CLI::App** command);
std::function<int()> AddCheckpoint(CLI::App& app, CLI::App** command);
std::function<int()> AddDashboard(CLI::App& app, CLI::App** command);
std::function<int()> AddPlan(CLI::App& app, CLI::App** command);
std::function<int()> AddSavedModel(CLI::App& app, CLI::App** command);
std::function<int()> AddServe(CLI::App& app, CLI::App** command);
std::function<int()> AddStatus(CLI::App& app, CLI::App** command);

// Says on stderr why a command failed, and returns the exit code.
inline int Fail(const char* command, const Status& status, int code) {
  std::cerr << "millrace " << command << ": " << status.message() << "\n";
  return code;
}

// Runs the internal commands, which this program starts itself: `millrace task-keeper`, `millrace explain-hang`,
// `millrace bench-net-partner`. Returns the exit code, or nullopt if it is none of them.
std::optional<int> RunHiddenCommand(int argc, char** argv);

}  // namespace millrace
