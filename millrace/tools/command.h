// The commands of `millrace`, one file each.
#pragma once

#include <functional>

#include "CLI/CLI.hpp"

namespace millrace {

// Adds a command with its flags; what it returns runs when that command was given and gives the exit code.
using AddCommand = std::function<int()> (*)(CLI::App& app, CLI::App** command);

std::function<int()> AddCheckpoint(CLI::App& app, CLI::App** command);
std::function<int()> AddServe(CLI::App& app, CLI::App** command);
std::function<int()> AddStatus(CLI::App& app, CLI::App** command);

}  // namespace millrace
