// The launcher's view of one task.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/launch/core_shares.h"
#include "millrace/launch/keeper_link.h"
#include "millrace/launch/run_state.h"
#include "millrace/launch/stream_lines.h"
#include "millrace/launch/task_board.h"

namespace millrace::launch {

struct LaunchedTask {
  std::string name;    // "worker/0"
  std::string prefix;  // of its lines, coloured where wanted
  std::string host;    // empty: this machine
  std::string host_address;  // where other tasks reach it
  std::string address;  // "host:port", once its keeper told the port
  CoreClaim claim;
  std::vector<int> cores;  // its own, the same after a restart; empty: it runs anywhere
  std::optional<KeeperLink> link;
  absl::Time keeper_deadline = absl::InfiniteFuture();  // until it says hello
  StreamLines out, error;
  std::string last_error;  // the last line on stderr that is not indented
  Training training;
  std::unique_ptr<WritableFile> log;
  RunState shown = RunState::kPending;  // the state that the user was told last
};

}  // namespace millrace::launch
