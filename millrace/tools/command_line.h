// The command line of `millrace`: its commands, their flags and what follows `--`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace millrace {

// Adds a command and its flags to `app`. The returned function runs the command and returns the exit code. `program` is
// what follows `--`, for the commands that run a program; it outlives the app.
using AddCommand = std::function<int()> (*)(CLI::App& app, const std::vector<std::string>& program, CLI::App** command);

// Runs the one of the commands that the arguments name, and returns the exit code; 2 for a mistake in them.
int RunCommandLine(int argc, char** argv, const std::vector<AddCommand>& commands);

}  // namespace millrace
