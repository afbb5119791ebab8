#include "millrace/launch/hang_question.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/cluster/watch/hang_report.h"
#include "millrace/launch/keeper_frame.h"
#include "millrace/launch/spawn.h"
#include "millrace/net/grpc/grpc_transport.h"

namespace millrace::launch {
namespace {

constexpr size_t kMaxAnswer = 1 << 20;
constexpr absl::Duration kTimeout = absl::Seconds(2);

std::string OneLine(const std::string& text) { return absl::StrReplaceAll(text, {{"\n", " "}}); }

// From stdin; null if there are none.
StatusOr<std::shared_ptr<const TlsCredentials>> ReadCredentials() {
  const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  if (text.empty()) return std::shared_ptr<const TlsCredentials>();
  MR_ASSIGN_OR_RETURN(TlsCredentials credentials, DecodeCredentials(text));
  return std::make_shared<const TlsCredentials>(std::move(credentials));
}

}  // namespace

StatusOr<HangQuestion> HangQuestion::Ask(const std::string& millrace, absl::Duration limit,
                                         const std::vector<std::string>& tasks, const TlsCredentials* credentials) {
  MR_ASSIGN_OR_RETURN(Pipe pipe, Pipe::Make());
  MR_ASSIGN_OR_RETURN(Pipe in, Pipe::Make());
  if (credentials != nullptr) {
    const std::string text = EncodeCredentials(*credentials);  // a few kilobytes, for which a new pipe has room
    SetNonBlocking(in.write.get());
    if (write(in.write.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return Unavailable("the pipe is too small for credentials");
  }
  SpawnOptions options = {
      .arguments = {"millrace", "explain-hang", absl::StrFormat("%.3f", absl::ToDoubleSeconds(limit))},
      .path = millrace,
      .descriptors = {in.read.get(), pipe.write.get(), -1},
      .parent_death_signal = SIGKILL};
  options.arguments.insert(options.arguments.end(), tasks.begin(), tasks.end());
  SpawnError error;
  const pid_t pid = Spawn(options, &error);
  if (pid < 0) return Unavailable(error.text);
  SetNonBlocking(pipe.read.get());
  return HangQuestion(pid, std::move(pipe.read));
}

bool HangQuestion::Read() {
  char bytes[4096];
  while (true) {
    const ssize_t size = read(fd_.get(), bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return false;
    if (size <= 0 || text_.size() > kMaxAnswer) return true;
    text_.append(bytes, size);
  }
}

HangAnswer HangQuestion::answer() const {
  const std::vector<std::string> lines = absl::StrSplit(text_, '\n', absl::SkipEmpty());
  if (lines.empty()) return {};
  return {lines[0], {lines.begin() + 1, lines.end()}};
}

int AnswerHangQuestion(const std::vector<std::string>& arguments) {
  double limit;
  if (arguments.empty() || !absl::SimpleAtod(arguments[0], &limit)) return 2;
  std::vector<TaskView> tasks;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::pair<std::string, std::string> part = absl::StrSplit(arguments[i], absl::MaxSplits('=', 1));
    tasks.push_back({.task = part.first, .address = part.second});
  }
  const StatusOr<std::shared_ptr<const TlsCredentials>> tls = ReadCredentials();
  if (!tls.ok()) return 2;
  const std::unique_ptr<net::Transport> transport = net::NewGrpcTransport({.tls = *tls});
  std::vector<TaskView> views = AskTasks(transport.get(), std::move(tasks), kTimeout);
  const bool any = std::any_of(views.begin(), views.end(),
                               [](const TaskView& view) { return view.answer.ok() && !view.is_tensorflow; });
  // A refused connection means that the program has no server: it is starting or ending, or never has one.
  std::erase_if(views, [](const TaskView& view) {
    return view.is_tensorflow || (!view.answer.ok() && !absl::IsDeadlineExceeded(view.answer));
  });
  if (!any) return 0;
  const HangReport report = ExplainHang(views, absl::Seconds(limit));
  if (report.cause.empty()) return 0;
  std::cout << OneLine(report.cause) << "\n";
  for (const std::string& wait : report.waits) std::cout << OneLine(wait) << "\n";
  std::cout << std::flush;
  return 0;
}

}  // namespace millrace::launch
