#include "millrace/tools/explain_hang.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/cluster/watch/hang_report.h"
#include "millrace/launch/keeper_frame.h"
#include "millrace/net/grpc/grpc_transport.h"

namespace millrace {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(2);

std::string OneLine(const std::string& text) { return absl::StrReplaceAll(text, {{"\n", " "}}); }

// From stdin; null if there are none.
StatusOr<std::shared_ptr<const TlsCredentials>> ReadCredentials() {
  const std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  if (text.empty()) return std::shared_ptr<const TlsCredentials>();
  MR_ASSIGN_OR_RETURN(TlsCredentials credentials, launch::DecodeCredentials(text));
  return std::make_shared<const TlsCredentials>(std::move(credentials));
}

}  // namespace

int ExplainHangOf(const std::vector<std::string>& arguments) {
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

}  // namespace millrace
