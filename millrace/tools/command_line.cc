#include "millrace/tools/command_line.h"

#include <algorithm>
#include <utility>

#include "millrace/base/version.h"

namespace millrace {

int RunCommandLine(int argc, char** argv, const std::vector<AddCommand>& commands) {
  CLI::App app{"Millrace: distributed dataflow with TensorFlow's protocol"};
  app.name("millrace");
  app.require_subcommand(1);
  app.set_version_flag("--version", Version());
  const std::string name = argc > 1 ? argv[1] : "";
  const bool launches = name == "launch" || name == "place" || name == "manifest";
  // What follows `launch ... --` belongs to the launched program; do not parse it.
  std::vector<std::string> program;
  char** const dashes = std::find_if(argv, argv + argc, [](const char* word) { return std::string(word) == "--"; });
  if (dashes != argv + argc && launches) {
    program.assign(dashes + 1, argv + argc);
    argc = static_cast<int>(dashes - argv);
  }
  std::vector<std::pair<CLI::App*, std::function<int()>>> added;
  for (const AddCommand add : commands) {
    CLI::App* command = nullptr;
    std::function<int()> run = add(app, program, &command);
    added.emplace_back(command, std::move(run));
  }
  app.failure_message([launches](const CLI::App*, const CLI::Error& error) {
    return std::string("millrace: ") + error.what() +
           (launches ? "\nThe program and its own flags come after --." : "") + "\nRun with --help for the flags.\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (auto& [command, run] : added) {
    if (command->parsed()) return run();
  }
  return 2;
}

}  // namespace millrace
