// A TCP proxy by which tests break and corrupt lanes. For tests only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"
#include "millrace/net/lane/lane_channel.h"
#include "millrace/net/transport.h"
#include "millrace/proto/lane.pb.h"

namespace millrace::net {

// Forwards the bytes between the two ends of lanes. Thread-safe.
class LaneProxy {
 public:
  LaneProxy() : listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at = Loopback(0);
    socklen_t size = sizeof(at);
    EXPECT_EQ(bind(listening_, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(listening_, 16), 0);
    EXPECT_EQ(getsockname(listening_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
    EXPECT_TRUE(accepting_->Start([this] { Accept(); }));
  }
  ~LaneProxy() {
    shutdown(listening_, SHUT_RDWR);
    accepting_.reset();  // no connection comes after it
    Cut();
    forwarding_.reset();
    close(listening_);
    MutexLock lock(&mu_);
    for (const auto& [a, b] : pairs_) {
      close(a);
      close(b);
    }
  }

  int port() const { return port_; }
  // The target of new connections.
  void set_target(int port) { target_ = port; }
  int connections() const { return connections_; }
  // Closes the current connections.
  void Cut() {
    MutexLock lock(&mu_);
    for (const auto& [a, b] : pairs_) {
      shutdown(a, SHUT_RDWR);
      shutdown(b, SHUT_RDWR);
    }
  }
  // The current connections stay open, but whatever is sent on them from now on is lost.
  void Silence() { ++silenced_; }
  // Flips a bit in the next frame in that direction.
  void CorruptNext(bool to_server) { (to_server ? corrupt_to_server_ : corrupt_to_client_) = true; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<uint16_t>(port));
    return at;
  }
  void Accept() {
    for (;;) {
      const int client = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in to = Loopback(target_);
      const bool connected = connect(server, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
      {
        MutexLock lock(&mu_);
        pairs_.emplace_back(client, server);
      }
      if (!connected) shutdown(client, SHUT_RDWR);
      ++connections_;
      const int born = silenced_;
      EXPECT_TRUE(forwarding_->Start([=, this] { Forward(client, server, born, &corrupt_to_server_); }));
      EXPECT_TRUE(forwarding_->Start([=, this] { Forward(server, client, born, &corrupt_to_client_); }));
    }
  }
  void Forward(int from, int to, int born, std::atomic<bool>* corrupt) {
    char bytes[1 << 16];
    for (;;) {
      const ssize_t got = recv(from, bytes, sizeof(bytes), 0);
      if (got <= 0) break;
      if (silenced_ != born) continue;
      if (corrupt->exchange(false)) bytes[offsetof(FrameHeader, call)] ^= 1;
      for (ssize_t at = 0; at < got;) {
        const ssize_t sent = send(to, bytes + at, static_cast<size_t>(got - at), MSG_NOSIGNAL);
        if (sent <= 0) break;
        at += sent;
      }
    }
    shutdown(from, SHUT_RDWR);
    if (silenced_ == born) shutdown(to, SHUT_RDWR);  // a silent network does not tell that the other end has closed
  }

  const int listening_;
  int port_ = 0;
  std::atomic<int> target_{0};
  std::atomic<int> connections_{0};
  std::atomic<int> silenced_{0};
  std::atomic<bool> corrupt_to_server_{false};
  std::atomic<bool> corrupt_to_client_{false};
  Mutex mu_;
  std::list<std::pair<int, int>> pairs_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<ThreadGroup> forwarding_ = std::make_unique<ThreadGroup>("lane-proxy");
  std::unique_ptr<ThreadGroup> accepting_ = std::make_unique<ThreadGroup>("lane-proxy");
};

// A setup transport that makes lanes go through a proxy.
class SetUpThroughProxy final : public Transport {
 public:
  SetUpThroughProxy(std::unique_ptr<Transport> inner, LaneProxy* proxy) : inner_(std::move(inner)), proxy_(proxy) {}
  std::shared_ptr<Channel> Connect(const std::string& address) override {
    return std::make_shared<ProxiedChannel>(inner_->Connect(address), proxy_);
  }
  StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, Service* service) override {
    return inner_->Listen(address, service);
  }

 private:
  class ProxiedChannel final : public Channel {
   public:
    ProxiedChannel(std::shared_ptr<Channel> inner, LaneProxy* proxy)
        : Channel(inner->address()), inner_(std::move(inner)), proxy_(proxy) {}
    RefPtr<OutgoingCall> Call(const std::string& method, Bytes request, const CallOptions& options,
                              Done done) override {
      if (method != kOfferMethod) return inner_->Call(method, std::move(request), options, std::move(done));
      // Asks as from another host.
      return inner_->Call(method, Serialize(LaneOfferRequest()), options,
                          [proxy = proxy_, done = std::move(done)](StatusOr<Bytes> answer) mutable {
                            LaneOffer offer;
                            if (!answer.ok() || !Parse(*answer, &offer).ok()) return done(std::move(answer));
                            proxy->set_target(static_cast<int>(offer.tcp_port()));
                            offer.set_tcp_port(static_cast<uint32_t>(proxy->port()));
                            offer.clear_unix_socket();
                            done(Serialize(offer));
                          });
    }

   private:
    const std::shared_ptr<Channel> inner_;
    LaneProxy* const proxy_;
  };

  const std::unique_ptr<Transport> inner_;
  LaneProxy* const proxy_;
};

}  // namespace millrace::net
