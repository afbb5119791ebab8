// The launcher's view of one task.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/launch/core_shares.h"
#include "millrace/launch/keeper_link.h"
#include "millrace/launch/output_tail.h"
#include "millrace/launch/run_state.h"
#include "millrace/launch/stream_lines.h"
#include "millrace/launch/task_board.h"

namespace millrace::launch {

struct LaunchedTask {
  std::string name;          // "worker/0"
  std::string prefix;        // the prefix of its output lines, with colour if enabled
  std::string host;          // empty: this machine
  std::string host_address;  // under which other tasks reach the host
  std::string address;       // "host:port", known once its keeper has reported the port
  CoreClaim claim;
  std::optional<std::string> gpus;  // CUDA_VISIBLE_DEVICES of its keeper, if known
  std::vector<int> cores;           // the cores it is bound to, also after a restart; empty: not bound
  std::optional<KeeperLink> link;
  std::string credential_folder;                        // of its keeper, if that is on this machine
  absl::Time keeper_deadline = absl::InfiniteFuture();  // for its hello
  StreamLines out, error;
  OutputTail tail;         // of both
  std::string last_error;  // the last line on stderr that is not indented
  Training training;
  bool log_is_behind = false;           // its log lacks what the disk did not take
  RunState shown = RunState::kPending;  // the state last shown to the user
};

}  // namespace millrace::launch
