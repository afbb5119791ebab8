// The command line of an example: a wrong flag ends it with exit status 2, as it ends `millrace`.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

// Returns the exit status if the program has to end: 0 after --help, 2 after a message that names what is wrong.
inline std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
}
