// The launcher's connection to a keeper: its process (or the ssh client that connects to it) and the frames in both
// directions.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/launch/keeper_frame.h"
#include "millrace/launch/meeting/meeting_place.h"
#include "millrace/launch/stream_lines.h"

namespace millrace::launch {

// How to reach keepers on other machines.
struct RemoteOptions {
  std::vector<std::string> ssh = {"ssh"};
  std::string millrace;   // the path of the millrace command there
  std::string directory;  // the working directory of programs
  // How long keepers there wait for a launcher that is silent: it is suspended, or its machine is gone. Infinite: for
  // ever.
  absl::Duration silence = absl::Minutes(2);
  std::string job = {};  // unique; for the claims of keepers (task_claim.h)
};

// Quotes `text` for a shell.
std::string ShellQuote(absl::string_view text);
// The command line that runs the keeper of `task` ("worker/1") on `host`.
std::vector<std::string> SshCommand(const RemoteOptions& remote, const std::string& host, const std::string& task);

// Not thread-safe; never blocks.
class KeeperLink {
 public:
  // Starts the keeper of `task` on `host`, or on this machine if `host` is empty. `millrace` is the path of this
  // program. Fails if no process could be created.
  static StatusOr<KeeperLink> Open(const std::string& millrace, const std::string& host, const RemoteOptions& remote,
                                   const std::string& task);
  // The connection of a keeper that came to the launcher's meeting.
  static KeeperLink Of(Arrival arrival);

  KeeperLink(KeeperLink&&) = default;
  KeeperLink& operator=(KeeperLink&&) = default;

  pid_t pid() const { return pid_; }  // 0 after OnReaped
  void OnReaped() { pid_ = 0; }
  void Kill(int signal);
  int out() const { return out_.get(); }      // to poll for reading; -1 at its end
  int error() const { return error_.get(); }  // likewise
  // To poll for writing; -1 if there is nothing to write.
  int in() const { return pending_.empty() ? -1 : in_.get(); }

  void Send(KeeperFrameKind kind, absl::string_view body);
  void Flush();
  // Closes the connection; the keeper then ends the task's processes and itself.
  void Close();
  // Whether the keeper is another process's child: its end shows only in the end of its frames.
  bool met() const { return channel_ != nullptr; }
  bool closed() const { return !in_.ok(); }

  // Reads the available frames. Returns false if the keeper is gone; why() then gives the reason, as far as it is
  // known.
  bool Read(const std::function<void(const KeeperFrame&)>& on_frame);
  void ReadError();
  // The last line that the keeper or ssh wrote to stderr, or instead of frames, and who wrote it.
  std::string why() const;

 private:
  KeeperLink() = default;

  pid_t pid_ = 0;
  Fd in_, out_, error_;
  std::shared_ptr<SealedChannel> channel_;
  std::string pending_;
  KeeperFrameReader reader_{/*greeting=*/true};
  StreamLines error_lines_;
  std::string last_error_;
};

}  // namespace millrace::launch
