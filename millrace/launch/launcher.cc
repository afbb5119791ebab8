#include "millrace/launch/launcher.h"

#include "millrace/launch/job_run.h"

namespace millrace::launch {

int RunLauncher(const LauncherOptions& options) { return JobRun(options).Run(); }

}  // namespace millrace::launch
