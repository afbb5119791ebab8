// millrace COMMAND ...: the program behind a cluster.
#include <utility>
#include <vector>

#include "millrace/tools/command.h"

int main(int argc, char** argv) {
  CLI::App app{"Millrace: distributed dataflow with TensorFlow's protocol"};
  app.name("millrace");
  app.require_subcommand(1);
  app.set_version_flag("--version", MILLRACE_VERSION);
  app.failure_message(CLI::FailureMessage::help);
  std::vector<std::pair<CLI::App*, std::function<int()>>> commands;
  for (const millrace::AddCommand add : {&millrace::AddServe, &millrace::AddStatus, &millrace::AddCheckpoint}) {
    CLI::App* command = nullptr;
    std::function<int()> run = add(app, &command);
    commands.emplace_back(command, std::move(run));
  }
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("millrace: ") + error.what() + "\nRun with --help for the flags.\n";
  });
  CLI11_PARSE(app, argc, argv);
  for (auto& [command, run] : commands) {
    if (command->parsed()) return run();
  }
  return 2;
}
