// One connection of the dashboard's server.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/dashboard/http_request.h"
#include "millrace/dashboard/http_response.h"
#include "millrace/net/tls/tls_stream.h"

namespace millrace::dashboard {

// Non-blocking, with bounded memory: input up to the largest head, output up to what Queue's caller allows. Not
// thread-safe.
class HttpConnection {
 public:
  // `tls` is null without TLS.
  HttpConnection(Fd fd, const net::TlsContext* tls, absl::Time now);

  // What to poll for.
  int fd() const { return fd_.get(); }
  short events() const;

  // Takes what has arrived. Returns false if the connection has ended.
  bool Read(absl::Time now);
  // The next request if its head has arrived, or what is wrong with it. Call it when nothing is being sent.
  std::optional<StatusOr<HttpRequest>> NextRequest();
  // Answers a request. After an answer without keep-alive, the connection ends once it is sent.
  void Answer(const HttpResponse& response, bool head_only, bool keep_alive);
  void Queue(SharedText text);
  // Sends as much as possible. Returns false if the connection has ended or is to be closed.
  bool Write(absl::Time now);

  bool trusted() const { return trusted_; }
  bool stream() const { return stream_; }
  size_t unsent() const { return unsent_; }
  // When it last moved: a request arrived as a whole, or bytes were sent.
  absl::Time moved() const { return moved_; }
  // Bytes of a request that is not complete.
  bool has_part() const { return !input_.empty(); }

 private:
  ssize_t Receive(char* bytes, size_t size);
  ssize_t Send(absl::string_view bytes);

  Fd fd_;
  std::unique_ptr<net::TlsStream> tls_;
  std::string input_;
  std::deque<SharedText> output_;
  size_t sent_ = 0;  // of the first of output_
  size_t unsent_ = 0;
  bool stream_ = false, trusted_ = false, closing_ = false, broken_ = false;
  absl::Time moved_;
};

}  // namespace millrace::dashboard
