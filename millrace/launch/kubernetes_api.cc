#include "millrace/launch/kubernetes_api.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/fd.h"
#include "millrace/base/file.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

constexpr char kAccountFolder[] = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr size_t kMostAnswer = 4 << 20;

std::string EnvironmentText(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string TlsError() {
  char text[256];
  const unsigned long error = ERR_get_error();
  if (error == 0) return errno == EAGAIN ? "no answer in time" : strerror(errno);
  ERR_error_string_n(error, text, sizeof(text));
  return text;
}

StatusOr<Fd> Connect(const std::string& host, const std::string& port, absl::Duration timeout) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return Unavailable(host, ": ", gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  const timeval limit = absl::ToTimeval(timeout);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (!socket.ok()) continue;
    // The time to send bounds connect as well.
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return socket;
  }
  return Unavailable("cannot connect to ", host, ":", port, ": ", strerror(errno));
}

}  // namespace

StatusOr<HttpAnswer> ParseHttpAnswer(absl::string_view bytes) {
  const size_t line_end = bytes.find("\r\n");
  const absl::string_view line = bytes.substr(0, line_end);
  HttpAnswer answer;
  if (line_end == absl::string_view::npos || line.size() < 12 || !absl::StartsWith(line, "HTTP/1.") || line[8] != ' ' ||
      !absl::SimpleAtoi(line.substr(9, 3), &answer.code) || answer.code < 100)
    return InvalidArgument("not an HTTP answer");
  const size_t head_end = bytes.find("\r\n\r\n");
  if (head_end == absl::string_view::npos) return InvalidArgument("an HTTP answer without the end of its head");
  answer.body = std::string(bytes.substr(head_end + 4));
  return answer;
}

StatusOr<std::string> EndOfJob(const std::string& json) {
  const nlohmann::json job = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!job.is_object() || job.value("kind", nlohmann::json()) != "Job") return InvalidArgument("not a Job");
  const auto status = job.find("status");
  if (status == job.end() || !status->is_object()) return std::string();
  const auto conditions = status->find("conditions");
  if (conditions == status->end() || !conditions->is_array()) return std::string();
  for (const nlohmann::json& condition : *conditions) {
    if (!condition.is_object() || condition.value("status", nlohmann::json()) != "True") continue;
    for (const char* end : {"Complete", "Failed"}) {
      if (condition.value("type", nlohmann::json()) == end) return std::string(end);
    }
  }
  return std::string();
}

StatusOr<KubernetesApi> KubernetesApi::OfThisPod() {
  KubernetesApi api = {.host = EnvironmentText("KUBERNETES_SERVICE_HOST"),
                       .port = EnvironmentText("KUBERNETES_SERVICE_PORT"),
                       .folder = EnvironmentText("MILLRACE_SERVICE_ACCOUNT")};
  if (api.folder.empty()) api.folder = kAccountFolder;
  if (api.port.empty()) api.port = "443";
  if (api.host.empty()) return FailedPrecondition("this is not a pod: KUBERNETES_SERVICE_HOST is not set");
  StatusOr<std::string> name_space = ReadWholeFile(FileSystem::Posix(), JoinPath(api.folder, "namespace"));
  if (!name_space.ok()) return FailedPrecondition("the pod has no service account: ", name_space.status().message());
  api.name_space = std::string(absl::StripAsciiWhitespace(*name_space));
  return api;
}

StatusOr<HttpAnswer> KubernetesApi::Ask(const std::string& method, const std::string& path,
                                        absl::Duration timeout) const {
  MR_ASSIGN_OR_RETURN(const std::string token, ReadWholeFile(FileSystem::Posix(), JoinPath(folder, "token")));
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  if (context == nullptr) return Unavailable(TlsError());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  // A server may close the connection of an HTTP/1.0 answer without TLS's goodbye.
  SSL_CTX_set_options(context.get(), SSL_OP_IGNORE_UNEXPECTED_EOF);
  if (SSL_CTX_load_verify_locations(context.get(), JoinPath(folder, "ca.crt").c_str(), nullptr) != 1)
    return Unavailable(JoinPath(folder, "ca.crt"), ": ", TlsError());
  MR_ASSIGN_OR_RETURN(const Fd socket, Connect(host, port, timeout));
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
  if (ssl == nullptr || SSL_set_fd(ssl.get(), socket.get()) != 1) return Unavailable(TlsError());
  // An address, as in most clusters, or a name.
  X509_VERIFY_PARAM* const expected = SSL_get0_param(ssl.get());
  if (X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str()) != 1 && SSL_set1_host(ssl.get(), host.c_str()) != 1)
    return Unavailable(TlsError());
  ERR_clear_error();
  if (SSL_connect(ssl.get()) != 1) return Unavailable(host, ":", port, ": ", TlsError());
  const std::string request =
      absl::StrCat(method, " ", path, " HTTP/1.0\r\nHost: ", host, "\r\nAuthorization: Bearer ",
                   absl::StripAsciiWhitespace(token), "\r\nAccept: application/json\r\nUser-Agent: millrace\r\n\r\n");
  if (SSL_write(ssl.get(), request.data(), static_cast<int>(request.size())) <= 0)
    return Unavailable(host, ":", port, ": ", TlsError());
  std::string bytes;
  char piece[8192];
  int size;
  while ((size = SSL_read(ssl.get(), piece, sizeof(piece))) > 0) {
    bytes.append(piece, size);
    if (bytes.size() > kMostAnswer) return Unavailable(host, ":", port, ": the answer is too long");
  }
  if (SSL_get_error(ssl.get(), size) != SSL_ERROR_ZERO_RETURN) return Unavailable(host, ":", port, ": ", TlsError());
  StatusOr<HttpAnswer> answer = ParseHttpAnswer(bytes);
  if (!answer.ok()) return Unavailable(host, ":", port, ": ", answer.status().message());
  return answer;
}

}  // namespace millrace
