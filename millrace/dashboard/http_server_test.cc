#include "millrace/dashboard/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "millrace/net/tcp_sockets.h"

namespace millrace::dashboard {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A server on a virtual clock, and clients, all on this thread: the server moves when the test lets it.
class HttpServerTest : public testing::Test {
 protected:
  void Open(HttpServerOptions options = {}) {
    net::TcpListeners listeners = net::ListenTcp({.host = "127.0.0.1", .port = 0}).value();
    port_ = listeners.port;
    options.clock = &clock_;
    server_ = std::make_unique<HttpServer>(
        std::move(listeners.sockets), [this](const HttpRequest& request) { return Answer(request); }, options);
  }

  HttpResponse Answer(const HttpRequest& request) {
    requests_.push_back(request.path);
    HttpResponse response = HttpResponse::Text(200, absl::StrCat("you asked for ", request.path));
    response.stream = request.path == "/stream";
    response.trusted = request.path != "/stranger";
    return response;
  }

  Fd Connect(int receive_buffer = 0) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_buffer > 0) setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    Turn();
    return fd;
  }

  // One round of the server; the clock stands still, so it does not wait.
  void Turn(int times = 1) {
    for (int i = 0; i < times; ++i) server_->Serve(clock_.Now(), -1);
  }

  void Send(const Fd& fd, const std::string& text) {
    ASSERT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }

  // What has arrived, once the server has had time for it.
  std::string Receive(const Fd& fd, size_t least = 1) {
    std::string text;
    for (int i = 0; i < 2000 && text.size() < least; ++i) {
      Turn();
      char bytes[65536];
      const ssize_t size = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (size > 0) text.append(bytes, size);
      if (size == 0) break;
      pollfd ready = {fd.get(), POLLIN, 0};
      if (size < 0) poll(&ready, 1, 1);
    }
    return text;
  }

  // Whether the server has closed the connection.
  bool IsClosed(const Fd& fd) {
    for (int i = 0; i < 2000; ++i) {
      Turn();
      char bytes[65536];
      const ssize_t size = recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (size == 0 || (size < 0 && errno == ECONNRESET)) return true;
      if (size < 0 && server_->connections() > 0) {
        pollfd ready = {fd.get(), POLLIN, 0};
        poll(&ready, 1, 1);
      }
    }
    return false;
  }

  static std::string Get(const std::string& path) { return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: a\r\n\r\n"); }

  VirtualClock clock_;
  int port_ = 0;
  std::vector<std::string> requests_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, SeveralRequestsOnOneConnectionAreAnsweredInOrder) {
  Open();
  const Fd fd = Connect();
  Send(fd, Get("/a") + Get("/b"));
  const std::string text = Receive(fd, 900);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("you asked for /a"));
  EXPECT_THAT(requests_, testing::ElementsAre("/a", "/b"));
  EXPECT_THAT(text, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
  EXPECT_THAT(text, HasSubstr("X-Content-Type-Options: nosniff"));
}

TEST_F(HttpServerTest, ARequestMayComeByteByByte) {
  Open();
  const Fd fd = Connect();
  for (const char c : Get("/slow")) {
    Send(fd, std::string(1, c));
    Turn();
  }
  EXPECT_THAT(Receive(fd), HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, HeadGetsNoBody) {
  Open();
  const Fd fd = Connect();
  Send(fd, "HEAD /a HTTP/1.0\r\nHost: a\r\n\r\n");
  const std::string text = Receive(fd);
  EXPECT_THAT(text, HasSubstr("Content-Length: 16"));
  EXPECT_THAT(text, testing::EndsWith("\r\n\r\n"));
  EXPECT_TRUE(IsClosed(fd));
}

TEST_F(HttpServerTest, AMalformedRequestIsRefusedAndTheConnectionCloses) {
  Open();
  const Fd fd = Connect();
  Send(fd, "NONSENSE\r\n\r\n");
  EXPECT_THAT(Receive(fd), StartsWith("HTTP/1.1 400"));
  EXPECT_TRUE(IsClosed(fd));
  EXPECT_THAT(requests_, testing::IsEmpty());
}

TEST_F(HttpServerTest, AnEndlessRequestIsRefusedWithinItsLimit) {
  Open();
  const Fd fd = Connect();
  const std::string piece(1000, 'x');
  for (int i = 0; i < 20; ++i) {
    send(fd.get(), piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    Turn();
  }
  EXPECT_THAT(Receive(fd), StartsWith("HTTP/1.1 431"));
  EXPECT_TRUE(IsClosed(fd));
}

TEST_F(HttpServerTest, ASlowRequestIsGivenUp) {
  Open({.patience = absl::Seconds(10)});
  const Fd silent = Connect();
  const Fd slow = Connect();
  for (int i = 0; i < 9; ++i) {
    Send(slow, "x");
    Turn(2);
    clock_.Advance(absl::Seconds(1));
  }
  EXPECT_EQ(server_->connections(), 2);
  clock_.Advance(absl::Seconds(2));
  Turn(2);
  EXPECT_EQ(server_->connections(), 0);
  EXPECT_TRUE(IsClosed(slow));
  EXPECT_TRUE(IsClosed(silent));
}

TEST_F(HttpServerTest, AStreamGetsEveryBroadcast) {
  Open();
  const Fd fd = Connect();
  Send(fd, Get("/stream"));
  Receive(fd);
  EXPECT_EQ(server_->streams(), 1);
  clock_.Advance(absl::Hours(1));  // a quiet stream stays
  Turn(2);
  server_->Broadcast(std::make_shared<const std::string>("data: 1\n\n"));
  EXPECT_EQ(Receive(fd), "data: 1\n\n");
}

TEST_F(HttpServerTest, AViewerThatDoesNotReadIsDroppedAndNotBufferedFor) {
  Open({.max_unsent = 1 << 20});
  const Fd reads = Connect(), sleeps = Connect(/*receive_buffer=*/4096);
  Send(reads, Get("/stream"));
  Send(sleeps, Get("/stream"));
  Receive(reads);
  Turn(10);
  ASSERT_EQ(server_->streams(), 2);
  const auto text = std::make_shared<const std::string>(std::string(200 << 10, 'x'));
  for (int i = 0; i < 20 && server_->streams() == 2; ++i) {
    server_->Broadcast(text);
    Receive(reads, text->size());
  }
  EXPECT_EQ(server_->streams(), 1);
  // And by time, even if little is to be sent.
}

TEST_F(HttpServerTest, AViewerThatStopsReadingIsDroppedAfterAWhile) {
  Open({.patience = absl::Seconds(10), .max_unsent = 64 << 20});
  const Fd sleeps = Connect(4096);
  Send(sleeps, Get("/stream"));
  Turn(10);
  ASSERT_EQ(server_->streams(), 1);
  for (int i = 0; i < 10; ++i) server_->Broadcast(std::make_shared<const std::string>(std::string(1 << 20, 'x')));
  Turn(2);
  ASSERT_EQ(server_->streams(), 1);
  clock_.Advance(absl::Seconds(11));
  Turn(2);
  EXPECT_EQ(server_->streams(), 0);
}

TEST_F(HttpServerTest, StrangersGiveWayToThoseWhoAreKnown) {
  Open({.max_connections = 8});
  const Fd known = Connect();
  Send(known, Get("/stream"));
  Receive(known);
  std::vector<Fd> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(Connect());
  EXPECT_EQ(server_->connections(), 8);
  EXPECT_EQ(server_->streams(), 1);
  // Somebody who is known gets in among them.
  const Fd another = Connect();
  Send(another, Get("/a"));
  EXPECT_THAT(Receive(another), HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, AStreamThatSendsMoreIsClosed) {
  Open();
  const Fd fd = Connect();
  Send(fd, Get("/stream"));
  Receive(fd);
  Send(fd, "more");
  EXPECT_TRUE(IsClosed(fd));
}

}  // namespace
}  // namespace millrace::dashboard
