// What only a real network has: certificates, proxies, connections that break.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "millrace/base/file.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"
#include "millrace/net/address.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/grpc/status.h"
#include "millrace/net/transport_testing.h"

namespace millrace::net {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(30);

Answer Start(Transport& transport, const std::string& address, const std::string& method,
             absl::Duration timeout = kSoon) {
  Answer answer;
  transport.Connect(address)->Call(TestService::FullName(method), Bytes::Of("x"), {.timeout = timeout}, answer.Done());
  return answer;
}
Status CallStatus(Transport& transport, const std::string& address, const std::string& method,
                  absl::Duration timeout = kSoon) {
  Answer answer = Start(transport, address, method, timeout);
  EXPECT_TRUE(answer.notification().WaitFor(kSoon));
  return answer.status();
}

class GrpcTest : public ::testing::Test {
 protected:
  GrpcTest() {
    service_.On("Echo", Echo);
    service_.On("Hold", held_.Handler());
  }
  std::string Listen(Transport& transport, const std::string& host = "localhost") {
    auto listener = transport.Listen(host + ":0", &service_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = std::move(listener).value();
    return absl::StrCat(host, ":", listener_->port());
  }

  TestService service_;
  HeldCalls held_;
  std::unique_ptr<Transport> transport_ = NewGrpcTransport();
  std::unique_ptr<Transport> tls_transport_;
  std::unique_ptr<Listener> listener_;
};

// Forwards connections to an address until it cuts them, and puts bytes of its own before what the server
// sends next if it is told to.
class Proxy {
 public:
  explicit Proxy(int to) : to_(to) {
    listening_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name = Loopback(0);
    socklen_t size = sizeof(name);
    EXPECT_EQ(bind(listening_, reinterpret_cast<sockaddr*>(&name), size), 0);
    EXPECT_EQ(listen(listening_, 10), 0);
    EXPECT_EQ(getsockname(listening_, reinterpret_cast<sockaddr*>(&name), &size), 0);
    port_ = ntohs(name.sin_port);
    EXPECT_EQ(pipe(wake_), 0);
    EXPECT_TRUE(thread_.Start([this] { Forward(); }));
  }
  ~Proxy() { Cut(); }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Closes everything.
  void Cut() {
    if (wake_[1] >= 0) close(std::exchange(wake_[1], -1));
  }
  void InsertIntoAnswers(std::string bytes) {
    MutexLock lock(&mu_);
    inserted_ = std::move(bytes);
  }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return name;
  }
  void Forward() {
    std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}, {listening_, POLLIN, 0}};
    std::map<int, int> other;
    for (;;) {
      poll(fds.data(), fds.size(), -1);
      if (fds[0].revents != 0) break;
      if (fds[1].revents != 0) {
        const int client = accept(listening_, nullptr, nullptr);
        const int server = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in name = Loopback(to_);
        EXPECT_EQ(connect(server, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
        other[client] = server;
        other[server] = client;
        fds.push_back({client, POLLIN, 0});
        fds.push_back({server, POLLIN, 0});
        continue;
      }
      for (size_t i = 2; i < fds.size(); ++i) {
        if (fds[i].revents == 0) continue;
        char buffer[65536];
        const ssize_t n = read(fds[i].fd, buffer, sizeof(buffer));
        if (n <= 0) {
          shutdown(other[fds[i].fd], SHUT_RDWR);
          fds[i].events = 0;
          fds[i].fd = -1;
        } else {
          if (i % 2 == 1) {  // the server's
            MutexLock lock(&mu_);
            send(other[fds[i].fd], inserted_.data(), inserted_.size(), MSG_NOSIGNAL);
            inserted_.clear();
          }
          send(other[fds[i].fd], buffer, n, MSG_NOSIGNAL);
        }
      }
    }
    for (const auto& [fd, peer] : other) close(fd);
    close(listening_);
    close(wake_[0]);
  }

  const int to_;
  int listening_;
  int port_;
  int wake_[2];
  Mutex mu_;
  std::string inserted_ ABSL_GUARDED_BY(mu_);
  ThreadGroup thread_{"proxy"};
};

TEST_F(GrpcTest, ACallWhosePeerHangsUpIsUnavailableAtOnceAndTheServerIsTold) {
  Listen(*transport_);
  Proxy proxy(listener_->port());
  Answer answer = Start(*transport_, proxy.address(), "Hold", absl::InfiniteDuration());
  Notification never;
  while (held_.size() == 0) never.WaitFor(absl::Milliseconds(1));
  proxy.Cut();
  ASSERT_TRUE(answer.notification().WaitFor(kSoon));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(answer.status().message(), proxy.address())) << answer.status();
  auto call = held_.Take();
  while (!call->cancellation()->IsCancelled()) never.WaitFor(absl::Milliseconds(1));
  call->Reply(Bytes());
}

TEST_F(GrpcTest, ACallOnAConnectionWhoseBytesMakeNoSenseIsUnavailable) {
  Listen(*transport_);
  for (const bool reset : {false, true}) {
    Proxy proxy(listener_->port());
    Answer answer = Start(*transport_, proxy.address(), "Hold", absl::InfiniteDuration());
    Notification never;
    while (held_.size() == 0) never.WaitFor(absl::Milliseconds(1));
    // A frame that is too long; or the end of the stream without a status.
    proxy.InsertIntoAnswers(reset ? std::string("\0\0\4\3\0\0\0\0\1\0\0\0\0", 13) : "\xff\xff\xff\1\1\1\1\1\1");
    auto echo = CallStatus(*transport_, proxy.address(), "Echo");
    EXPECT_TRUE(echo.ok() || echo.code() == absl::StatusCode::kUnavailable) << echo;
    EXPECT_TRUE(answer.notification().WaitFor(kSoon));
    held_.Take()->Reply(Bytes());
    answer.notification().Wait();
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
  }
}

TEST_F(GrpcTest, ANameThatDoesNotResolveIsCalledThat) {
  EXPECT_EQ(WithPlainLookup("a:1: DNS resolution failed for a:1: C-ares status is not ARES_SUCCESS qtype=A name=a "
                            "is_balancer=0: Domain name not found"),
            "a:1: its name does not resolve (Domain name not found)");
  EXPECT_EQ(WithPlainLookup("a:1: DNS resolution failed for a:1: no more words"),
            "a:1: DNS resolution failed for a:1: no more words");
}

TEST_F(GrpcTest, PeersOnIpv6AreNamedAsPeopleWriteThem) {
  EXPECT_EQ(WithPlainAddresses("last error: ipv6:%5Bfe80::1%25eth0%5D:1: refused"),
            "last error: ipv6:[fe80::1%eth0]:1: refused");
  EXPECT_EQ(WithPlainAddresses("ipv4:127.0.0.1:1: 100%25"), "ipv4:127.0.0.1:1: 100%25");
  service_.On("WhoAmI", [](std::shared_ptr<IncomingCall> call) { call->Reply(Bytes::Of(call->peer())); });
  auto listener = transport_->Listen("[::1]:0", &service_);
  if (!listener.ok()) GTEST_SKIP() << "a machine without IPv6: " << listener.status();
  const std::string address = absl::StrCat("[::1]:", (*listener)->port());
  Answer answer = Start(*transport_, address, "WhoAmI");
  ASSERT_TRUE(answer.notification().WaitFor(kSoon));
  ASSERT_EQ(answer.status(), absl::OkStatus());
  EXPECT_TRUE(absl::StartsWith(answer.result()->Flatten(), "ipv6:[::1]:")) << answer.result()->Flatten();
  // And those that are not there.
  listener->reset();
  const Status gone = CallStatus(*NewGrpcTransport(), address, "Echo");
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(gone.message(), "[::1]:") && !absl::StrContains(gone.message(), '%')) << gone;
}

TEST_F(GrpcTest, ProxiesOfTheEnvironmentAreNotUsed) {
  const char* const names[] = {"http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"};
  for (const char* name : names) setenv(name, "http://127.0.0.1:1", 1);
  const std::string address = Listen(*transport_);
  EXPECT_TRUE(CallStatus(*transport_, address, "Echo").ok());
  for (const char* name : names) unsetenv(name);
}

TEST_F(GrpcTest, LoopbackHostsAreServedOnLoopbackOnly) {
  const auto can_bind = [](const char* host, int port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    inet_pton(AF_INET, host, &name.sin_addr);
    const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0;
    close(fd);
    return bound;
  };
  for (const char* host : {"localhost", "127.0.0.1"}) {
    Listen(*transport_, host);
    EXPECT_TRUE(can_bind("127.0.0.2", listener_->port())) << host;
    EXPECT_FALSE(can_bind("127.0.0.1", listener_->port())) << host;
  }
  Listen(*transport_, "some.host");
  EXPECT_FALSE(can_bind("127.0.0.2", listener_->port()));
  EXPECT_TRUE(CallStatus(*transport_, absl::StrCat("127.0.0.1:", listener_->port()), "Echo").ok());
}

TEST_F(GrpcTest, ADeepChainOfHandlersThatRunLongIsServed) {
  // Each handler keeps its thread until the next one has been served.
  auto* const transport = transport_.get();
  std::string address;
  service_.On("Nest", [&](std::shared_ptr<IncomingCall> call) {
    const int depth = std::stoi(call->request().Flatten());
    if (depth % 2 == 0) call->RunsLong();
    if (depth > 0) {
      Answer inner;
      transport->Connect(address)->Call(TestService::FullName("Nest"), Bytes::Of(std::to_string(depth - 1)), {},
                                        inner.Done());
      EXPECT_TRUE(inner.notification().WaitFor(kSoon));
    }
    call->Reply(Bytes());
  });
  address = Listen(*transport_);
  Answer answer;
  transport->Connect(address)->Call(TestService::FullName("Nest"), Bytes::Of("20"), {}, answer.Done());
  ASSERT_TRUE(answer.notification().WaitFor(kSoon));
  EXPECT_TRUE(answer.status().ok());
}

class TlsTest : public GrpcTest {
 protected:
  void Run(const std::string& command) {
    ASSERT_EQ(std::system(absl::StrCat("cd ", files_.path(), " && (", command, ") >log 2>&1").c_str()), 0)
        << ReadWholeFile(FileSystem::Posix(), files_.File("log")).value_or("");
  }
  void MakeAuthority(const std::string& name) {
    Run(absl::StrCat("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=", name,
                     " -keyout ", name, ".key -out ", name, ".crt"));
  }
  // A task's credentials, for a host, signed by the authority.
  std::shared_ptr<const TlsCredentials> MakeTask(const std::string& name, const std::string& authority,
                                                 const std::string& host) {
    Run(absl::StrCat("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=", name, " -keyout ",
                     name, ".key -out ", name, ".csr && echo subjectAltName=DNS:", host,
                     " > ext && openssl x509 -req -in ", name, ".csr -CA ", authority, ".crt -CAkey ", authority,
                     ".key -CAcreateserial -days 2 -extfile ext -out ", name, ".crt"));
    auto tls =
        ReadTlsCredentials(files_.File(name + ".crt"), files_.File(name + ".key"), files_.File(authority + ".crt"));
    EXPECT_TRUE(tls.ok()) << tls.status();
    return tls.value_or(nullptr);
  }
  Status CallWith(std::shared_ptr<const TlsCredentials> tls, const std::string& address) {
    auto client = NewGrpcTransport({.tls = std::move(tls)});
    return CallStatus(*client, address, "Echo");
  }

  TempDirectory files_ = TempDirectory::Make("tls").value();
};

TEST_F(TlsTest, PeersOfOneAuthorityTalkAndOthersAreRefused) {
  MakeAuthority("ca");
  MakeAuthority("other");
  const auto task = MakeTask("task", "ca", "localhost");
  tls_transport_ = NewGrpcTransport({.tls = task});
  const std::string address = Listen(*tls_transport_);
  EXPECT_TRUE(CallWith(task, address).ok()) << CallWith(task, address);
  EXPECT_TRUE(CallWith(MakeTask("second", "ca", "elsewhere"), address).ok());

  Status status = CallWith(nullptr, address);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "TLS")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), address)) << status;

  status = CallWith(MakeTask("stranger", "other", "localhost"), address);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "TLS")) << status;

  // Believes the server, but cannot show a certificate that the server believes.
  const auto stranger = MakeTask("stranger", "other", "localhost");
  auto half = std::make_shared<TlsCredentials>(*stranger);
  half->authority = task->authority;
  status = CallWith(half, address);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "TLS")) << status;
}

TEST_F(TlsTest, AServersCertificateMustBeForItsHost) {
  MakeAuthority("ca");
  tls_transport_ = NewGrpcTransport({.tls = MakeTask("elsewhere", "ca", "elsewhere")});
  const std::string address = Listen(*tls_transport_);
  const Status status = CallWith(MakeTask("task", "ca", "localhost"), address);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "TLS")) << status;
}

TEST_F(TlsTest, AServerWithoutTlsIsNotBelieved) {
  MakeAuthority("ca");
  const std::string address = Listen(*transport_);
  const Status status = CallWith(MakeTask("task", "ca", "localhost"), address);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), "TLS")) << status;
}

TEST_F(TlsTest, FilesThatHoldNoCredentialsAreNamed) {
  const Status missing = ReadTlsCredentials(files_.File("none.crt"), "", "").status();
  EXPECT_TRUE(absl::StrContains(missing.message(), "none.crt")) << missing;
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), files_.File("bad.crt"), "no PEM").ok());
  const Status bad = ReadTlsCredentials(files_.File("bad.crt"), "", "").status();
  EXPECT_EQ(bad.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(bad.message(), "bad.crt")) << bad;

  const char* const nonsense = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n";
  auto tls = std::make_shared<TlsCredentials>(TlsCredentials{nonsense, nonsense, nonsense});
  const auto listener = NewGrpcTransport({.tls = tls})->Listen("localhost:0", &service_);
  EXPECT_FALSE(listener.ok());
  EXPECT_TRUE(absl::StrContains(listener.status().message(), "TLS")) << listener.status();
  const Status call = CallWith(tls, "localhost:1");
  EXPECT_FALSE(call.ok());
}

}  // namespace
}  // namespace millrace::net
