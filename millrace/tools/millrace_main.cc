// The `millrace` command.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/version.h"
#include "millrace/launch/init_process.h"
#include "millrace/tools/command.h"

int main(int argc, char** argv) {
  millrace::launch::SplitOffInit();
  if (const std::optional<int> code = millrace::RunHiddenCommand(argc, argv)) return *code;
  CLI::App app{"Millrace: distributed dataflow with TensorFlow's protocol"};
  app.name("millrace");
  app.require_subcommand(1);
  app.set_version_flag("--version", millrace::Version());
  app.failure_message(CLI::FailureMessage::help);
  const std::string name = argc > 1 ? argv[1] : "";
  const bool launches = name == "launch" || name == "place" || name == "manifest";
  // What follows `launch ... --` belongs to the launched program; do not parse it.
  std::vector<std::string> program;
  char** const dashes = std::find_if(argv, argv + argc, [](const char* word) { return std::string(word) == "--"; });
  if (dashes != argv + argc && launches) {
    program.assign(dashes + 1, argv + argc);
    argc = static_cast<int>(dashes - argv);
  }
  std::vector<std::pair<CLI::App*, std::function<int()>>> commands;
  CLI::App* command = nullptr;
  std::function<int()> run = millrace::AddLaunch(app, program, &command);
  commands.emplace_back(command, std::move(run));
  run = millrace::AddPlace(app, program, &command);
  commands.emplace_back(command, std::move(run));
  run = millrace::AddManifest(app, program, &command);
  commands.emplace_back(command, std::move(run));
  for (const millrace::AddCommand add : {&millrace::AddServe, &millrace::AddStatus, &millrace::AddDashboard,
                                         &millrace::AddPlan, &millrace::AddCheckpoint, &millrace::AddSavedModel,
                                         &millrace::AddBenchNet, &millrace::AddHealth, &millrace::AddEndWithJob}) {
    run = add(app, &command);
    commands.emplace_back(command, std::move(run));
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
  for (auto& [command, run] : commands) {
    if (command->parsed()) return run();
  }
  return 2;
}
