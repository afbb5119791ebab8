// Measures the step lane between two processes of this host: an empty call, and calls with a large request or answer,
// over each kind of transport, with the processor time of both ends; for comparison a plain TCP stream, a plain Unix
// socket and a memory copy.
//
//   lane_bench [--kinds shm,tcp,tls,grpc,grpcs] [--seconds 0.5] [--sizes 0,1024,...] [--floor]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "millrace/base/mutex.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/net/tls/certificate_authority.h"
#include "millrace/tensor/buffer.h"

namespace {

using millrace::Allocator;
using millrace::Buffer;
using millrace::Notification;
using millrace::RefPtr;
using millrace::StatusOr;
using namespace millrace::net;

constexpr size_t kLargest = size_t{1} << 30;

// "Put" takes a request of any size; "Get" answers with as many bytes as the request says.
class BulkService : public Service {
 public:
  explicit BulkService(RefPtr<Buffer> data) : data_(std::move(data)) {}
  const std::vector<std::string>& methods() const override { return methods_; }
  void OnCall(int method, std::shared_ptr<IncomingCall> call) override {
    if (method == 0) {
      call->request() = Bytes();
      return call->Reply(Bytes());
    }
    uint64_t size = 0;
    if (!BytesReader(call->request()).Read(&size, sizeof(size)) || size > data_->size())
      return call->Reply(millrace::InvalidArgument("no size"));
    Bytes answer;
    answer.Append({static_cast<const char*>(data_->data()), size}, data_);
    call->Reply(std::move(answer));
  }

 private:
  const std::vector<std::string> methods_ = {"/bench.Bulk/Put", "/bench.Bulk/Get"};
  const RefPtr<Buffer> data_;
};

// What is measured: "shm", "tcp", "grpc", or with mutual TLS "tls", which is tcp, and "grpcs".
struct Measured {
  std::string name;
  LaneKind kind;
  std::shared_ptr<const millrace::TlsCredentials> tls;
};

StatusOr<Measured> Parse(const std::string& name) {
  if (name != "tls" && name != "grpcs") {
    MR_ASSIGN_OR_RETURN(const LaneKind kind, ParseLaneKind(name));
    return Measured{name, kind, nullptr};
  }
  MR_ASSIGN_OR_RETURN(const auto authority, CertificateAuthority::Make("lane_bench"));
  MR_ASSIGN_OR_RETURN(millrace::TlsCredentials tls, authority->Issue("both", {"localhost"}, CertificateRole::kTask));
  return Measured{name, name == "tls" ? LaneKind::kTcp : LaneKind::kGrpc,
                  std::make_shared<const millrace::TlsCredentials>(std::move(tls))};
}

std::unique_ptr<Transport> NewTransport(const Measured& what) {
  LaneOptions options{.kind = what.kind};
  if (what.tls != nullptr) options.tls = TlsContext::Make(*what.tls).value();
  return NewLaneTransport(NewGrpcTransport({.tls = what.tls}), options);
}

RefPtr<Buffer> Touched(size_t size) {
  RefPtr<Buffer> buffer = Allocator::Heap()->Allocate(size);
  MR_CHECK(buffer);
  std::memset(buffer->data(), 1, size);
  return buffer;
}

// A server in a separate process, which ends with this one.
class ServerProcess {
 public:
  ServerProcess(const Measured& what, size_t largest) {
    int port_pipe[2];
    MR_CHECK(pipe(port_pipe) == 0);
    pid_ = fork();
    MR_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      BulkService service(Touched(largest));
      auto transport = NewTransport(what);
      auto listener = transport->Listen("localhost:0", &service);
      MR_CHECK(listener.ok());
      const int port = (*listener)->port();
      MR_CHECK(write(port_pipe[1], &port, sizeof(port)) == sizeof(port));
      for (;;) pause();
    }
    MR_CHECK(read(port_pipe[0], &port_, sizeof(port_)) == sizeof(port_));
    close(port_pipe[0]);
    close(port_pipe[1]);
  }
  ~ServerProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::string address() const { return absl::StrCat("localhost:", port_); }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  int port_ = 0;
};

StatusOr<Bytes> Call(Channel& channel, const char* method, Bytes request) {
  Notification done;
  StatusOr<Bytes> result = absl::UnknownError("");
  channel.Call(method, std::move(request), {.every_step = true}, [&](StatusOr<Bytes> answer) {
    result = std::move(answer);
    done.Notify();
  });
  done.Wait();
  return result;
}

// The processor time of a process; 0: this one.
double CpuSeconds(pid_t pid) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  timespec time{};
  if (pid != 0) MR_CHECK(clock_getcpuclockid(pid, &clock) == 0);
  MR_CHECK(clock_gettime(clock, &time) == 0);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void Print(const char* kind, const char* what, size_t size, double seconds, double cpu_seconds = 0) {
  std::printf("%-5s %-4s %10zu bytes %10.1f us %8.2f GB/s", kind, what, size, seconds * 1e6, size / seconds / 1e9);
  if (cpu_seconds > 0) std::printf(" %10.1f us of processor time", cpu_seconds * 1e6);
  std::printf("\n");
  std::fflush(stdout);
}

void MeasureKind(const Measured& what, double seconds, const std::vector<size_t>& sizes) {
  const size_t largest = *std::max_element(sizes.begin(), sizes.end());
  ServerProcess server(what, largest);
  const RefPtr<Buffer> data = Touched(largest);
  auto transport = NewTransport(what);
  auto channel = transport->Connect(server.address());
  while (what.kind != LaneKind::kGrpc && channel->streaming() == nullptr)
    MR_CHECK(Call(*channel, "/bench.Bulk/Put", {}).ok());
  const auto measure = [&](const char* direction, size_t size, const auto& call) {
    int calls = 0;
    const double cpu = CpuSeconds(0) + CpuSeconds(server.pid());
    const double median = millrace::bench::MedianSeconds(seconds, [&] {
      call();
      ++calls;
    });
    Print(what.name.c_str(), direction, size, median, (CpuSeconds(0) + CpuSeconds(server.pid()) - cpu) / calls);
  };
  for (const size_t size : sizes) {
    measure("put", size, [&] {
      Bytes request;
      request.Append({static_cast<const char*>(data->data()), size}, data);
      MR_CHECK(Call(*channel, "/bench.Bulk/Put", std::move(request)).ok());
    });
    measure("get", size, [&] {
      const uint64_t wanted = size;
      auto answer = Call(*channel, "/bench.Bulk/Get",
                         Bytes::Of(std::string(reinterpret_cast<const char*>(&wanted), sizeof(wanted))));
      MR_CHECK(answer.ok() && answer->size() == size);
    });
  }
  for (const PeerStatus& peer : transport->status().peers) {
    if (!peer.why_not_better.empty()) std::printf("%-5s %s\n", peer.kind.c_str(), peer.why_not_better.c_str());
  }
}

void SendAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    MR_CHECK(sent > 0);
    data += sent;
    size -= static_cast<size_t>(sent);
  }
}

void ReceiveAll(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t got = recv(fd, data, size, 0);
    if (got <= 0) _exit(0);
    data += got;
    size -= static_cast<size_t>(got);
  }
}

std::pair<int, int> SocketPair(bool tcp) {
  int fds[2];
  if (!tcp) {
    MR_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    return {fds[0], fds[1]};
  }
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(name);
  MR_CHECK(bind(listening, reinterpret_cast<sockaddr*>(&name), size) == 0 && listen(listening, 1) == 0);
  MR_CHECK(getsockname(listening, reinterpret_cast<sockaddr*>(&name), &size) == 0);
  fds[0] = socket(AF_INET, SOCK_STREAM, 0);
  MR_CHECK(connect(fds[0], reinterpret_cast<sockaddr*>(&name), size) == 0);
  fds[1] = accept(listening, nullptr, nullptr);
  close(listening);
  const int one = 1;
  for (const int fd : fds) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return {fds[0], fds[1]};
}

// Plain sockets: a message in one direction, one byte back.
void MeasureFloor(bool tcp, double seconds, const std::vector<size_t>& sizes) {
  const auto [here, there] = SocketPair(tcp);
  const size_t largest = *std::max_element(sizes.begin(), sizes.end());
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(here);
    const RefPtr<Buffer> to = Touched(largest);
    for (;;) {
      uint64_t size;
      ReceiveAll(there, reinterpret_cast<char*>(&size), sizeof(size));
      ReceiveAll(there, static_cast<char*>(to->data()), size);
      SendAll(there, "x", 1);
    }
  }
  close(there);
  const RefPtr<Buffer> data = Touched(largest);
  for (const uint64_t size : sizes) {
    Print(tcp ? "tcp" : "unix", "raw", size, millrace::bench::MedianSeconds(seconds, [&] {
            char back;
            SendAll(here, reinterpret_cast<const char*>(&size), sizeof(size));
            SendAll(here, static_cast<const char*>(data->data()), size);
            ReceiveAll(here, &back, 1);
          }));
  }
  close(here);
  waitpid(child, nullptr, 0);
}

void MeasureCopy(double seconds, const std::vector<size_t>& sizes) {
  const size_t largest = *std::max_element(sizes.begin(), sizes.end());
  const RefPtr<Buffer> from = Touched(largest);
  const RefPtr<Buffer> to = Touched(largest);
  for (const size_t size : sizes) {
    if (size > 0)
      Print("copy", "raw", size,
            millrace::bench::MedianSeconds(seconds, [&] { std::memcpy(to->data(), from->data(), size); }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> kinds = {"shm", "tcp", "tls", "grpc", "grpcs"};
  std::vector<size_t> sizes = {0, 1000, 10'000, 32'000, 64'000, 100'000, 1'000'000, 10'000'000, 100'000'000};
  double seconds = 0.5;
  bool floor = false;
  CLI::App app("What the step lane reaches between two processes of this host");
  app.add_option("--kinds", kinds)->delimiter(',');
  app.add_option("--sizes", sizes)->delimiter(',')->check(CLI::Range(size_t{0}, kLargest));
  app.add_option("--seconds", seconds);
  app.add_flag("--floor", floor, "Also measure plain sockets and a memory copy");
  CLI11_PARSE(app, argc, argv);
  // Servers must be forked before this process has threads, so each kind runs in a process of its own.
  const auto in_child = [](auto measure) {
    const pid_t child = fork();
    if (child == 0) {
      measure();
      std::fflush(stdout);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  };
  if (floor) {
    in_child([&] { MeasureFloor(/*tcp=*/false, seconds, sizes); });
    in_child([&] { MeasureFloor(/*tcp=*/true, seconds, sizes); });
    in_child([&] { MeasureCopy(seconds, sizes); });
  }
  for (const std::string& name : kinds) {
    const StatusOr<Measured> kind = Parse(name);
    if (!kind.ok()) {
      std::fprintf(stderr, "%s\n", std::string(kind.status().message()).c_str());
      return 2;
    }
    in_child([&] { MeasureKind(*kind, seconds, sizes); });
  }
  return 0;
}
