#include "millrace/tools/task_keeper.h"

#include "absl/strings/numbers.h"
#include "millrace/launch/keeper.h"
#include "millrace/launch/step_keeper.h"

namespace millrace {

int RunTaskKeeper(const std::vector<std::string>& arguments) {
  if (arguments.size() > 1 && arguments[0] == "--tasks") return launch::RunStepKeeper(arguments[1]);
  launch::KeeperOptions options;
  double silence;
  if (!arguments.empty() && absl::SimpleAtod(arguments[0], &silence) && silence > 0)
    options.silence = absl::Seconds(silence);
  if (arguments.size() > 1) options.claim = arguments[1];
  return launch::RunKeeper(options);
}

}  // namespace millrace
