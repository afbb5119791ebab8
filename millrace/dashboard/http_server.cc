#include "millrace/dashboard/http_server.h"

#include <poll.h>

#include <algorithm>

#include "millrace/net/tcp_sockets.h"

namespace millrace::dashboard {
namespace {

constexpr int kAcceptsAtOnce = 64;
// How often late connections are looked for.
constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

}  // namespace

HttpServer::HttpServer(std::vector<Fd> listeners, Handler handler, HttpServerOptions options)
    : listeners_(std::move(listeners)), handler_(std::move(handler)), options_(std::move(options)) {}

void HttpServer::Serve(absl::Time until, int wake) {
  while (true) {
    std::vector<pollfd> fds = {{wake, POLLIN, 0}};
    for (const Fd& listener : listeners_) fds.push_back({listener.get(), POLLIN, 0});
    for (const HttpConnection& connection : connections_) fds.push_back({connection.fd(), connection.events(), 0});
    const absl::Time now = options_.clock->Now();
    absl::Duration wait = until - now;
    if (!connections_.empty()) wait = std::min(wait, kBetweenLooks);
    poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(wait), 0, 600000)));
    auto ready = fds.begin() + 1 + static_cast<ptrdiff_t>(listeners_.size());
    for (auto it = connections_.begin(); it != connections_.end(); ++ready) {
      it = Continue(&*it, ready->revents) && !IsLate(*it) ? std::next(it) : connections_.erase(it);
    }
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (fds[1 + i].revents != 0) Accept(listeners_[i].get());
    }
    if (fds[0].revents != 0 || options_.clock->Now() >= until) return;
  }
}

void HttpServer::Accept(int listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Fd fd = net::AcceptSocket(listener);
    if (!fd.ok()) return;
    // Without room the connection is closed at once: those who are known do not notice how many others come.
    if (!MakeRoom()) continue;
    net::SetTcpOptions(fd.get());
    connections_.emplace_back(std::move(fd), options_.tls.get(), options_.clock->Now());
  }
}

bool HttpServer::MakeRoom() {
  if (connections_.size() < options_.max_connections) return true;
  const auto stranger = std::find_if(connections_.begin(), connections_.end(),
                                     [](const HttpConnection& connection) { return !connection.trusted(); });
  if (stranger == connections_.end()) return false;
  connections_.erase(stranger);
  return true;
}

bool HttpServer::Continue(HttpConnection* connection, short ready) {
  const absl::Time now = options_.clock->Now();
  if ((ready & (POLLERR | POLLNVAL)) != 0) return false;
  if ((ready & (POLLIN | POLLHUP)) != 0 && !connection->Read(now)) return false;
  while (const auto request = connection->NextRequest()) {
    if (!request->ok()) {
      connection->Answer(HttpResponse::Error(request->status()), /*head_only=*/false, /*keep_alive=*/false);
    } else {
      connection->Answer(handler_(**request), (*request)->method == "HEAD", (*request)->keep_alive);
    }
    if (!connection->Write(now)) return false;
  }
  return (ready & POLLOUT) == 0 || connection->Write(now);
}

bool HttpServer::IsLate(const HttpConnection& connection) const {
  const absl::Duration quiet = options_.clock->Now() - connection.moved();
  if (connection.unsent() > 0) return quiet > options_.patience || connection.unsent() > options_.max_unsent;
  if (connection.stream()) return false;
  return quiet > (connection.trusted() && !connection.has_part() ? options_.idle : options_.patience);
}

void HttpServer::Broadcast(const SharedText& text) {
  const absl::Time now = options_.clock->Now();
  for (auto it = connections_.begin(); it != connections_.end();) {
    bool keep = true;
    if (it->stream()) {
      it->Queue(text);
      keep = it->Write(now) && !IsLate(*it);
    }
    it = keep ? std::next(it) : connections_.erase(it);
  }
}

int HttpServer::streams() const {
  return static_cast<int>(std::count_if(connections_.begin(), connections_.end(),
                                        [](const HttpConnection& connection) { return connection.stream(); }));
}

}  // namespace millrace::dashboard
