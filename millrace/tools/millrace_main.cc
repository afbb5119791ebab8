// The `millrace` command. A scheduler starts `place` for every task of a job, and a launcher `task-keeper`: those are
// here. The other commands come with the library (commands.cc), which takes longer to load than a task to be placed.
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <vector>

#include "millrace/launch/init_process.h"
#include "millrace/tools/command.h"
#include "millrace/tools/command_line.h"
#include "millrace/tools/task_keeper.h"

#ifdef MILLRACE_COMMANDS_LINKED
extern "C" int MillraceRunCommand(int argc, char** argv);
#endif

namespace {

int RunOther(int argc, char** argv) {
#ifdef MILLRACE_COMMANDS_LINKED
  return MillraceRunCommand(argc, argv);
#else
  void* const library = dlopen(MILLRACE_COMMANDS, RTLD_NOW);
  const auto run =
      library == nullptr ? nullptr : reinterpret_cast<int (*)(int, char**)>(dlsym(library, "MillraceRunCommand"));
  if (run != nullptr) return run(argc, argv);
  fprintf(stderr, "millrace: cannot load its commands: %s; it is installed beside libmillrace.so\n", dlerror());
  return 1;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  millrace::launch::SplitOffInit();
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "task-keeper") return millrace::RunTaskKeeper(std::vector<std::string>(argv + 2, argv + argc));
  if (name == "place") return millrace::RunCommandLine(argc, argv, {&millrace::AddPlace});
  return RunOther(argc, argv);
}
