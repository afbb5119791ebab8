// A directory of checkpoints after a crash: which can be used, and what else is there.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/train/checkpoint/saver.h"

namespace millrace {

// The checkpoints of a directory whose index is intact and whose data files have the right lengths, newest first. Logs
// why another one is not among them. Empty if there are none; DATA_LOSS if there are and none can be used, or if the
// list itself is damaged.
StatusOr<std::vector<std::string>> UsableCheckpoints(const std::string& directory,
                                                     const std::string& latest_filename = "checkpoint",
                                                     FileSystem* files = FileSystem::Posix());

// Restores the newest usable checkpoint. The values are compared with their checksums before they are assigned; if some
// differ, the log says so, the checkpoint is taken off the list (its files stay), and the one before is tried. Returns
// the prefix of the one that was restored; "" if there is none. DATA_LOSS if there are some and all are damaged.
StatusOr<std::string> RestoreNewest(Saver* saver, ClientSession* session, const std::string& directory);

// Removes what saves under `prefix` ("DIR/NAME") that were killed have left: temporary files and directories, and data
// without an index. Nobody may be saving there. Logs what it removes; errors are logged and not fatal.
void RemoveLeftovers(const std::string& prefix, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
