// The commands that need the library; `millrace_main.cc` loads what this file and they are linked into.
#include <string>
#include <vector>

#include "millrace/tools/bench_net/partner.h"
#include "millrace/tools/command.h"
#include "millrace/tools/command_line.h"
#include "millrace/tools/explain_hang.h"

extern "C" [[gnu::visibility("default")]] int MillraceRunCommand(int argc, char** argv) {
  using namespace millrace;
  // What `millrace` starts itself.
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "explain-hang") return ExplainHangOf(std::vector<std::string>(argv + 2, argv + argc));
  if (name == "bench-net-partner") return bench_net::RunPartnerProcess();
  return RunCommandLine(argc, argv,
                        {&AddLaunch, &AddPlace, &AddManifest, &AddServe, &AddStatus, &AddDashboard, &AddPlan,
                         &AddCheckpoint, &AddSavedModel, &AddBenchNet, &AddHealth, &AddEndWithJob});
}
