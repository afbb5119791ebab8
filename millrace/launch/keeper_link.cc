#include "millrace/launch/keeper_link.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "millrace/launch/spawn.h"

namespace millrace::launch {

std::string ShellQuote(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::vector<std::string> SshCommand(const RemoteOptions& remote, const std::string& host, const std::string& task) {
  std::vector<std::string> words = remote.ssh;
  // Never prompts, notices within 15 s that the other machine is gone, and neither shares nor keeps connections.
  for (const char* option : {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3",
                             "ControlMaster=no", "ControlPath=none"}) {
    words.push_back("-o");
    words.push_back(option);
  }
  for (const char* flag : {"-T", "-x"}) words.push_back(flag);
  words.push_back("--");
  words.push_back(host);
  words.push_back(
      absl::StrCat("cd ", ShellQuote(remote.directory), " && exec ", ShellQuote(remote.millrace), " task-keeper ",
                   absl::StrFormat("%.3f", absl::ToDoubleSeconds(remote.silence)),
                   remote.job.empty() ? "" : absl::StrCat(" ", ShellQuote(absl::StrCat(remote.job, "/", task)))));
  return words;
}

StatusOr<KeeperLink> KeeperLink::Open(const std::string& millrace, const std::string& host, const RemoteOptions& remote,
                                      const std::string& task) {
  MR_ASSIGN_OR_RETURN(Pipe in, Pipe::Make());
  MR_ASSIGN_OR_RETURN(Pipe out, Pipe::Make());
  MR_ASSIGN_OR_RETURN(Pipe error, Pipe::Make());
  SpawnOptions options = {.descriptors = {in.read.get(), out.write.get(), error.write.get()}};
  if (host.empty()) {
    options.arguments = {"millrace", "task-keeper"};
    options.path = millrace;
  } else {
    options.arguments = SshCommand(remote, host, task);
  }
  SpawnError why;
  KeeperLink link;
  link.pid_ = Spawn(options, &why);
  if (link.pid_ < 0) return Unavailable(why.text);
  for (const Fd* fd : {&in.write, &out.read, &error.read}) SetNonBlocking(fd->get());
  link.in_ = std::move(in.write);
  link.out_ = std::move(out.read);
  link.error_ = std::move(error.read);
  return link;
}

KeeperLink KeeperLink::Of(Arrival arrival) {
  KeeperLink link;
  link.in_ = Fd(fcntl(arrival.socket.get(), F_DUPFD_CLOEXEC, 0));
  link.out_ = std::move(arrival.socket);
  link.channel_ = std::move(arrival.channel);
  return link;
}

void KeeperLink::Close() {
  if (met() && in_.ok()) shutdown(in_.get(), SHUT_WR);
  in_.Reset();
}

void KeeperLink::Kill(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

void KeeperLink::Send(KeeperFrameKind kind, absl::string_view body) {
  if (!in_.ok()) return;
  const std::string frame = EncodeKeeperFrame(kind, body);
  // Without its records in order the keeper ends the connection.
  pending_ += met() ? channel_->out.Seal(frame).value_or("") : frame;
  Flush();
}

void KeeperLink::Flush() {
  while (!pending_.empty() && in_.ok()) {
    const ssize_t size = met() ? send(in_.get(), pending_.data(), pending_.size(), MSG_NOSIGNAL)
                               : write(in_.get(), pending_.data(), pending_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) {
      // Its end is handled where its frames are read.
      pending_.clear();
      return;
    }
    pending_.erase(0, size);
  }
}

bool KeeperLink::Read(const std::function<void(const KeeperFrame&)>& on_frame) {
  char bytes[64 << 10];
  const ssize_t size = read(out_.get(), bytes, sizeof(bytes));
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  std::string opened;
  const absl::string_view read_bytes(bytes, std::max<ssize_t>(size, 0));
  const Status whole = met() && size > 0 ? channel_->in.Open(read_bytes, &opened) : absl::OkStatus();
  if (!whole.ok()) last_error_ = std::string(whole.message());
  if (size > 0 && whole.ok()) {
    reader_.Add(met() ? opened : read_bytes);
    while (true) {
      StatusOr<std::optional<KeeperFrame>> frame = reader_.Next();
      if (!frame.ok()) {
        last_error_ = std::string(frame.status().message());
        break;
      }
      if (!frame->has_value()) return true;
      on_frame(**frame);
    }
  }
  out_.Reset();
  ReadError();
  in_.Reset();
  return false;
}

void KeeperLink::ReadError() {
  char bytes[4096];
  ssize_t size;
  const auto keep = [this](absl::string_view line) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty()) last_error_ = std::string(line.substr(0, 300));
  };
  while (error_.ok() && (size = read(error_.get(), bytes, sizeof(bytes))) > 0)
    error_lines_.Add({bytes, static_cast<size_t>(size)}, keep);
  if (error_.ok() && size == 0) {
    error_.Reset();
    error_lines_.Flush(keep);
  }
}

std::string KeeperLink::why() const {
  if (!last_error_.empty()) return last_error_;
  return std::string(absl::StripAsciiWhitespace(reader_.noise()).substr(0, 300));
}

}  // namespace millrace::launch
