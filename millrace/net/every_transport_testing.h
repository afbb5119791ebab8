// All kinds of transports, for tests of what they have in common. For tests only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/base/thread_pool.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/inproc/inproc_transport.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/net/sim/sim_network.h"
#include "millrace/net/tls/certificate_authority.h"
#include "millrace/net/transport_testing.h"

namespace millrace::net {

// The network in which transports of one kind meet.
class World {
 public:
  virtual ~World() = default;
  virtual std::unique_ptr<Transport> NewTransport() = 0;
  // Waits for `condition`, which a handler makes true; returns false if that takes too long.
  virtual bool WaitUntil(const std::function<bool()>& condition) { return net::WaitUntil(condition); }
  // Waits until calls with every_step take the fast path.
  virtual void Prepare(Channel& channel) {}
};

class GrpcWorld : public World {
  std::unique_ptr<Transport> NewTransport() override { return NewGrpcTransport(); }
};

class InprocWorld : public World {
  std::unique_ptr<Transport> NewTransport() override {
    return NewInprocTransport({.network = network_, .scheduler = &pool_});
  }
  std::shared_ptr<InprocNetwork> network_ = NewInprocNetwork();
  ThreadPool pool_{"inproc", 2};
};

class InlineWorld : public World {
  std::unique_ptr<Transport> NewTransport() override { return NewInprocTransport({.network = network_}); }
  std::shared_ptr<InprocNetwork> network_ = NewInprocNetwork();
};

template <bool kStreams>
class SimWorld : public World {
 public:
  SimWorld() { network_.SetStreams(kStreams); }

 private:
  std::unique_ptr<Transport> NewTransport() override { return network_.NewTransport(absl::StrCat("host", hosts_++)); }
  bool WaitUntil(const std::function<bool()>& condition) override { return network_.RunUntil(condition); }
  SimNetwork network_{1};
  int hosts_ = 0;
};

template <LaneKind kKind>
class LaneWorld : public World {
  std::unique_ptr<Transport> NewTransport() override { return NewLaneTransport(NewGrpcTransport(), {.kind = kKind}); }
  void Prepare(Channel& channel) override {
    ASSERT_TRUE(WaitUntil([&] {
      Answer answer;
      if (channel.streaming() == nullptr) channel.Call("/test.Service/None", {}, {.every_step = true}, answer.Done());
      return channel.streaming() != nullptr;
    }));
  }
};

// Every transport gets a certificate of its own; steps are sent over TCP, encrypted.
class TlsLaneWorld : public LaneWorld<LaneKind::kTcp> {
  std::unique_ptr<Transport> NewTransport() override {
    const auto tls = std::make_shared<TlsCredentials>(
        authority_->Issue("a task", {"localhost", "127.0.0.1", "::1"}, CertificateRole::kTask).value());
    return NewLaneTransport(NewGrpcTransport({.tls = tls}),
                            {.kind = LaneKind::kTcp, .tls = TlsContext::Make(*tls).value()});
  }
  const std::unique_ptr<CertificateAuthority> authority_ = CertificateAuthority::Make("a test").value();
};

template <typename T>
std::unique_ptr<World> Make() {
  return std::make_unique<T>();
}

struct Kind {
  const char* name;
  std::unique_ptr<World> (*make)();
  bool streams = true;
  bool threads = true;  // several threads may make calls
};

inline std::vector<Kind> KindsWhere(bool (*wanted)(const Kind&)) {
  std::vector<Kind> kinds = {{"grpc", Make<GrpcWorld>, /*streams=*/false},
                             {"inproc", Make<InprocWorld>},
                             {"inline", Make<InlineWorld>},
                             {"sim", Make<SimWorld<false>>, /*streams=*/false, /*threads=*/false},
                             {"sim_streaming", Make<SimWorld<true>>, /*streams=*/true, /*threads=*/false},
                             {"lane_shm", Make<LaneWorld<LaneKind::kShm>>},
                             {"lane_tcp", Make<LaneWorld<LaneKind::kTcp>>},
                             {"lane_tls", Make<TlsLaneWorld>}};
  std::erase_if(kinds, [&](const Kind& kind) { return !wanted(kind); });
  return kinds;
}
inline std::vector<Kind> AllKinds() {
  return KindsWhere([](const Kind&) { return true; });
}
inline std::string NameOfKind(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }

// A fixture with a server and a client of one kind. Tests derive from it to have a name of their own, and are
// instantiated with ValuesIn(AllKinds()), NameOfKind, or with some of the kinds.
class EveryTransport : public ::testing::TestWithParam<Kind> {
 protected:
  // Listens at a port that the system chooses.
  std::unique_ptr<Listener> Listen() {
    auto listener = server_->Listen("localhost:0", &service_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    address_ = absl::StrCat("localhost:", (*listener)->port());
    channel_ = client_->Connect(address_);
    world_->Prepare(*channel_);
    return std::move(listener).value();
  }
  Answer Start(const std::string& method, Bytes request = {}, CallOptions options = {}) {
    Answer answer;
    options.every_step = true;
    call_ = channel_->Call(TestService::FullName(method), std::move(request), options, answer.Done());
    return answer;
  }
  const StatusOr<Bytes>& Wait(const Answer& answer) {
    EXPECT_TRUE(world_->WaitUntil([&] { return answer.here(); })) << "no answer";
    return answer.result();
  }
  Status CallStatus(const std::string& method, Bytes request = {}, CallOptions options = {}) {
    return Wait(Start(method, std::move(request), options)).status();
  }
  bool WaitUntil(const std::function<bool()>& condition) { return world_->WaitUntil(condition); }

  std::unique_ptr<World> world_ = GetParam().make();
  TestService service_;
  std::unique_ptr<Transport> server_ = world_->NewTransport();
  std::unique_ptr<Transport> client_ = world_->NewTransport();
  std::string address_;
  std::shared_ptr<Channel> channel_;
  RefPtr<OutgoingCall> call_;  // the last
};

}  // namespace millrace::net
