// The launcher's end of a keeper: its process (or the ssh client that leads to it), and the frames that come and go.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/launch/frame.h"
#include "millrace/launch/stream_lines.h"

namespace millrace::launch {

// How keepers on another machine are reached.
struct RemoteOptions {
  std::vector<std::string> ssh = {"ssh"};
  std::string millrace;   // the command there
  std::string directory;  // where programs run
  absl::Duration silence = absl::Seconds(30);
};

// `text` as a shell reads it back.
std::string ShellQuote(absl::string_view text);
// The words that run a keeper on `host`.
std::vector<std::string> SshCommand(const RemoteOptions& remote, const std::string& host);

// One thread.
class KeeperLink {
 public:
  // On this machine where `host` is empty. `millrace` is this program's file. Error: no process could be made.
  static StatusOr<KeeperLink> Open(const std::string& millrace, const std::string& host, const RemoteOptions& remote);

  KeeperLink(KeeperLink&&) = default;
  KeeperLink& operator=(KeeperLink&&) = default;

  pid_t pid() const { return pid_; }  // 0 when it has been waited for
  void OnReaped() { pid_ = 0; }
  void Kill(int signal);
  int out() const { return out_.get(); }      // to poll for reading; -1 when it has ended
  int error() const { return error_.get(); }  // likewise
  // To poll for writing; -1 when there is nothing to write.
  int in() const { return pending_.empty() ? -1 : in_.get(); }

  void Send(FrameKind kind, absl::string_view body);
  void Flush();
  // Nothing more is said to it: it ends what is left, and itself.
  void Close() { in_.Reset(); }
  bool closed() const { return !in_.ok(); }

  // Reads what is there. False when the keeper is gone: then why() says what is known.
  bool Read(const std::function<void(const Frame&)>& on_frame);
  void ReadError();
  // The last thing that was written to stderr or instead of frames, and by whom.
  std::string why() const;

 private:
  KeeperLink() = default;

  pid_t pid_ = 0;
  Fd in_, out_, error_;
  std::string pending_;
  FrameReader reader_{/*greeting=*/true};
  StreamLines error_lines_;
  std::string last_error_;
};

}  // namespace millrace::launch
