#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "millrace/launch/hang_question.h"
#include "millrace/launch/keeper.h"
#include "millrace/launch/step_keeper.h"
#include "millrace/tools/bench_net/partner.h"
#include "millrace/tools/command.h"

namespace millrace {

std::optional<int> RunHiddenCommand(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const std::vector<std::string> rest(argv + std::min(argc, 2), argv + argc);
  if (name == "explain-hang") return launch::AnswerHangQuestion(rest);
  if (name == "bench-net-partner") return bench_net::RunPartnerProcess();
  if (name != "task-keeper") return std::nullopt;
  if (rest.size() > 1 && rest[0] == "--tasks") return launch::RunStepKeeper(rest[1]);
  launch::KeeperOptions options;
  double silence;
  if (!rest.empty() && absl::SimpleAtod(rest[0], &silence) && silence > 0) options.silence = absl::Seconds(silence);
  if (rest.size() > 1) options.claim = rest[1];
  return launch::RunKeeper(options);
}

}  // namespace millrace
