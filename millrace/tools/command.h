// The commands of `millrace`, one file each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace millrace {

// Adds a command with its flags; what it returns runs when that command was given and gives the exit code.
using AddCommand = std::function<int()> (*)(CLI::App& app, CLI::App** command);

// `program` is what followed `--`; it outlives the app.
std::function<int()> AddLaunch(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);
std::function<int()> AddBenchNet(CLI::App& app, CLI::App** command);
std::function<int()> AddCheckpoint(CLI::App& app, CLI::App** command);
std::function<int()> AddServe(CLI::App& app, CLI::App** command);
std::function<int()> AddStatus(CLI::App& app, CLI::App** command);

// Commands that this program gives to its own kind and no user does: `millrace task-keeper`, `millrace explain-hang`, `millrace bench-net-partner`. Nothing
// when it is none of them, else the exit code.
std::optional<int> RunHiddenCommand(int argc, char** argv);

}  // namespace millrace
