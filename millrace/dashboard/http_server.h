// A small HTTP server for a page of events: GET and HEAD, without bodies, on one thread that never blocks.
//
// It is written for viewers that cannot be trusted: every connection has a limit of bytes and time, a viewer that does
// not read is dropped instead of buffered for, and beyond the limit of connections strangers give way.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/fd.h"
#include "millrace/dashboard/http_connection.h"

namespace millrace::dashboard {

struct HttpServerOptions {
  size_t max_connections = 128;
  // For a request's head to arrive, for a client without one, and for a client to read something of its answer.
  absl::Duration patience = absl::Seconds(10);
  absl::Duration idle = absl::Seconds(60);  // between two requests of a client that is known
  // A stream that has more than this to read is dropped; its viewer connects again and gets the whole state.
  size_t max_unsent = 4 << 20;
  std::shared_ptr<const net::TlsContext> tls = nullptr;
  Clock* clock = Clock::Real();
};

// Single-threaded.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // `listeners` are listening sockets, non-blocking.
  HttpServer(std::vector<Fd> listeners, Handler handler, HttpServerOptions options = {});

  // Serves until `until`, or until `wake` is readable.
  void Serve(absl::Time until, int wake);
  // Sends `text` to all streams.
  void Broadcast(const SharedText& text);

  int streams() const;
  int connections() const { return static_cast<int>(connections_.size()); }

 private:
  void Accept(int listener);
  // Makes room for one more, if possible.
  bool MakeRoom();
  // Returns false if the connection is to be closed.
  bool Continue(HttpConnection* connection, short ready);
  bool IsLate(const HttpConnection& connection) const;

  std::vector<Fd> listeners_;
  const Handler handler_;
  const HttpServerOptions options_;
  std::list<HttpConnection> connections_;  // oldest first
};

}  // namespace millrace::dashboard
