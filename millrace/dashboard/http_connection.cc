#include "millrace/dashboard/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace millrace::dashboard {
namespace {

// What the kernel holds for a viewer that does not read.
constexpr int kSendBuffer = 128 << 10;

}  // namespace

HttpConnection::HttpConnection(Fd fd, const net::TlsContext* tls, absl::Time now) : fd_(std::move(fd)), moved_(now) {
  setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof(kSendBuffer));
  if (tls == nullptr) return;
  StatusOr<std::unique_ptr<net::TlsStream>> stream = net::TlsStream::Accept(*tls, fd_.get());
  if (stream.ok()) {
    tls_ = *std::move(stream);
  } else {
    broken_ = true;
  }
}

short HttpConnection::events() const {
  // A stream is read too: that is how its end is noticed.
  const bool reads = output_.empty() || stream_;
  return static_cast<short>((reads ? POLLIN : 0) | (output_.empty() ? 0 : POLLOUT));
}

ssize_t HttpConnection::Receive(char* bytes, size_t size) {
  if (tls_ == nullptr) return recv(fd_.get(), bytes, size, 0);
  const iovec to = {bytes, size};
  return tls_->Read({&to, 1});
}

ssize_t HttpConnection::Send(absl::string_view bytes) {
  if (tls_ == nullptr) return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const iovec from = {const_cast<char*>(bytes.data()), bytes.size()};
  return tls_->Write({&from, 1});
}

bool HttpConnection::Read(absl::Time now) {
  if (broken_) return false;
  char bytes[4096];
  while (input_.size() <= HttpRequest::kMaxHead) {
    const ssize_t size = Receive(bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN;
    if (size == 0) return false;
    // A browser sends nothing on a stream.
    if (stream_) return false;
    if (input_.empty()) moved_ = now;
    input_.append(bytes, size);
  }
  return true;
}

std::optional<StatusOr<HttpRequest>> HttpConnection::NextRequest() {
  if (stream_ || closing_ || !output_.empty() || input_.empty()) return std::nullopt;
  const size_t head = HeadSize(input_);
  if (head > HttpRequest::kMaxHead || (head == 0 && input_.size() > HttpRequest::kMaxHead))
    return ResourceExhausted("the request's head has more than ", HttpRequest::kMaxHead, " bytes");
  if (head == 0) return std::nullopt;
  StatusOr<HttpRequest> request = ParseHttpRequest(absl::string_view(input_).substr(0, head));
  input_.erase(0, head);
  return request;
}

void HttpConnection::Answer(const HttpResponse& response, bool head_only, bool keep_alive) {
  stream_ = response.stream && !head_only;
  trusted_ = trusted_ || response.trusted;
  closing_ = !stream_ && (!keep_alive || response.stream);
  Queue(std::make_shared<const std::string>(response.Head(!closing_)));
  if (!head_only && response.body != nullptr) Queue(response.body);
}

void HttpConnection::Queue(SharedText text) {
  if (text->empty()) return;
  unsent_ += text->size();
  output_.push_back(std::move(text));
}

bool HttpConnection::Write(absl::Time now) {
  while (!output_.empty()) {
    const absl::string_view rest = absl::string_view(*output_.front()).substr(sent_);
    const ssize_t size = Send(rest);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return errno == EAGAIN;
    moved_ = now;
    unsent_ -= size;
    sent_ += size;
    if (sent_ < output_.front()->size()) continue;
    output_.pop_front();
    sent_ = 0;
  }
  return !closing_;
}

}  // namespace millrace::dashboard
