#include "millrace/dashboard/dashboard.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "millrace/base/file.h"
#include "millrace/base/process_usage.h"
#include "millrace/base/thread_group.h"
#include "millrace/dashboard/access.h"
#include "millrace/dashboard/http_server.h"
#include "millrace/dashboard/look_out.h"
#include "millrace/dashboard/merge_patch.h"
#include "millrace/dashboard/metrics.h"
#include "millrace/dashboard/web_page.h"
#include "millrace/net/address.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::dashboard {
namespace {

using nlohmann::json;

// A comment goes to idle streams this often, so that tunnels and proxies keep them.
constexpr absl::Duration kHeartbeat = absl::Seconds(15);
// How often it looks whether it is to end.
constexpr absl::Duration kBetweenSignals = absl::Milliseconds(300);
// What a viewer gets per second at most; larger updates come less often.
constexpr double kBytesPerSecond = 80e3;

double ResidentBytes() {
  const std::string text = ReadWholeFile(FileSystem::Posix(), "/proc/self/statm").value_or("");
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  int64_t pages = 0;
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &pages)) return 0;
  return static_cast<double>(pages * sysconf(_SC_PAGESIZE));
}

std::string Dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

SharedText Event(const char* name, const json& value) {
  return std::make_shared<const std::string>(absl::StrCat("event: ", name, "\ndata: ", Dump(value), "\n\n"));
}

// Answers requests from what the look-out has found, and sends every change to the viewers.
class Server {
 public:
  Server(const DashboardOptions& options, Access access, LookOut* look_out, net::TcpListeners listeners,
         std::shared_ptr<const net::TlsContext> tls)
      : options_(options),
        access_(std::move(access)),
        look_out_(look_out),
        has_tls_(tls != nullptr),
        http_(std::move(listeners.sockets), [this](const HttpRequest& request) { return Answer(request); },
              {.tls = std::move(tls)}) {}

  // Returns when `signals` is readable.
  void Run(int signals) {
    absl::Time next_heartbeat = Now() + kHeartbeat;
    while (true) {
      http_.Serve(std::min(next_heartbeat, Now() + kBetweenSignals), look_out_->wake_fd());
      pollfd ready = {signals, POLLIN, 0};
      if (poll(&ready, 1, 0) > 0) return;
      look_out_->ClearWake();
      look_out_->set_watched(http_.streams() > 0);
      if (Now() >= next_update_) Update();
      if (Now() < next_heartbeat) continue;
      next_heartbeat = Now() + kHeartbeat;
      http_.Broadcast(std::make_shared<const std::string>(":\n\n"));
    }
  }

 private:
  absl::Time Now() const { return options_.watch.clock->Now(); }

  void Update() {
    const std::shared_ptr<const json> document = look_out_->document();
    if (document == sent_) return;
    const json patch = MergePatch(*sent_, *document);
    sent_ = document;
    if (patch.empty() || http_.streams() == 0) return;
    const SharedText event = Event("patch", patch);
    http_.Broadcast(event);
    next_update_ = Now() + absl::Seconds(static_cast<double>(event->size()) / kBytesPerSecond);
  }

  HttpResponse Answer(const HttpRequest& request) {
    const absl::string_view path = request.path;
    const WebFile* const file = FindWebFile(path == "/" ? "index.html" : path.substr(1));
    if (const Status allowed = access_.Check(request, /*secret=*/file == nullptr); !allowed.ok())
      return Refuse(allowed);
    HttpResponse response = file != nullptr ? AnswerFile(request, *file) : AnswerSecret(request);
    response.trusted = access_.Identifies(request);
    return response;
  }

  HttpResponse AnswerFile(const HttpRequest& request, const WebFile& file) {
    HttpResponse response = {.type = TypeOf(file.name), .headers = {{"Vary", "Accept-Encoding"}}};
    if (absl::StrContains(request.Header("accept-encoding").value_or(""), "gzip")) {
      SharedText& packed = packed_[std::string(file.name)];
      if (packed == nullptr) packed = std::make_shared<const std::string>(Gzip(file.text));
      response.body = packed;
      response.headers.emplace_back("Content-Encoding", "gzip");
    } else {
      response.body = std::make_shared<const std::string>(file.text);
    }
    return response;
  }

  static HttpResponse Refuse(const Status& why) {
    HttpResponse response = HttpResponse::Error(why);
    if (absl::IsUnimplemented(why)) {
      response.status = 405;
      response.headers.emplace_back("Allow", "GET, HEAD");
    }
    if (absl::IsUnauthenticated(why)) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }

  HttpResponse AnswerSecret(const HttpRequest& request) {
    if (request.path == "/session") {
      HttpResponse response = {.status = 204};
      if (access_.HasToken(request)) response.headers.emplace_back("Set-Cookie", access_.SetCookie(has_tls_));
      return response;
    }
    if (request.path == "/events") {
      Update();  // so that what the others have and what this one gets are the same
      look_out_->Hurry();
      return {.type = "text/event-stream", .body = Event("state", *sent_), .stream = true};
    }
    if (request.path == "/state") {
      return {.type = "application/json", .body = std::make_shared<const std::string>(Dump(*look_out_->document()))};
    }
    if (request.path == "/output") return HttpResponse::Text(200, look_out_->Output(request.Parameter("task")));
    if (request.path == "/metrics") {
      const ProcessUsage usage = UsageOfThisProcess();
      return {.type = "text/plain; version=0.0.4; charset=utf-8",
              .body = std::make_shared<const std::string>(
                  MetricsText(*look_out_->document(), {.viewers = http_.streams(),
                                                       .cpu_seconds = usage.user_seconds + usage.system_seconds,
                                                       .resident_bytes = ResidentBytes()}))};
    }
    return HttpResponse::Error(NotFound("there is no ", request.path, " here"));
  }

  const DashboardOptions& options_;
  const Access access_;
  LookOut* const look_out_;
  const bool has_tls_;
  std::map<std::string, SharedText> packed_;  // files of the page, compressed, once they have been asked for
  std::shared_ptr<const json> sent_ = std::make_shared<const json>(json::object());
  absl::Time next_update_ = absl::InfinitePast();
  HttpServer http_;
};

// Takes SIGINT and SIGTERM from now on, in all threads that are started later too.
Fd TakeSignals() {
  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGINT);
  sigaddset(&taken, SIGTERM);
  sigaddset(&taken, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &taken, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return Fd(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::string UrlOf(const DashboardOptions& options, int port, const std::string& token) {
  const bool any = options.host == "0.0.0.0" || options.host == "::";
  const std::string host = !options.host_names.empty() ? options.host_names[0] : any ? "localhost" : options.host;
  return absl::StrCat(options.certificate.empty() ? "http" : "https", "://", net::JoinHostPort(host, port),
                      "/#k=", token);
}

}  // namespace

Status CheckSave(const std::string& file) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(file, error);
  if (std::filesystem::is_directory(path, error)) return InvalidArgument(file, " is a folder; give a file");
  if (access(path.parent_path().c_str(), W_OK | X_OK) != 0)
    return InvalidArgument("no file can be made in ", path.parent_path().string(), ": ", strerror(errno));
  return absl::OkStatus();
}

Status RunDashboard(const DashboardOptions& options) {
  if (!net::IsLoopback(options.host) && options.certificate.empty()) {
    return InvalidArgument(
        "beyond the loopback interface the dashboard needs TLS: give --https_cert and --https_key, "
        "or leave it on localhost and use `ssh -L`");
  }
  const std::string token = options.token.empty() ? RandomToken() : options.token;
  MR_RETURN_IF_ERROR(CheckToken(token));
  std::shared_ptr<const net::TlsContext> tls;
  if (!options.certificate.empty()) {
    MR_ASSIGN_OR_RETURN(tls, net::TlsContext::MakeForAnyClient(options.certificate, options.key));
  }
  const Fd signals = TakeSignals();
  MR_ASSIGN_OR_RETURN(net::TcpListeners listeners, net::ListenTcp({.host = options.host, .port = options.port}));
  const int port = listeners.port;
  AccessOptions access = {.token = token,
                          .cookie_name = absl::StrCat("millrace_", port),
                          .cookie_value = RandomToken(),
                          .hosts = options.host_names};
  access.hosts.push_back(options.host);
  for (std::string& name : access.hosts) name = absl::AsciiStrToLower(name);
  LookOut look_out(options.watch, options.save);
  MR_RETURN_IF_ERROR(look_out.Begin());
  Server server(options, Access(std::move(access)), &look_out, std::move(listeners), std::move(tls));
  if (options.tell != nullptr) options.tell(UrlOf(options, port, token));
  server.Run(signals.get());
  return look_out.End();
}

}  // namespace millrace::dashboard
