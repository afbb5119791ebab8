#include "millrace/cluster/watch/session_lease.h"

#include <map>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/sim/manual_timers_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CallFrom : public net::IncomingCall {
 public:
  explicit CallFrom(std::string peer) : peer_(std::move(peer)) {}
  net::Bytes& request() override { return request_; }
  absl::Time deadline() const override { return absl::InfiniteFuture(); }
  std::string peer() const override { return peer_; }
  CancellationManager* cancellation() override { return nullptr; }
  void Reply(StatusOr<net::Bytes>) override {}
  bool answered() const override { return false; }

 private:
  const std::string peer_;
  net::Bytes request_;
};

// Peers are connected unless they hang up; the state of "inproc" is unknown.
class FakeConnections : public net::ConnectionTable {
 public:
  std::vector<State> Look(absl::Span<const std::string> peers) override {
    ++looks;
    std::vector<State> states;
    for (const std::string& peer : peers) {
      states.push_back(peer == "inproc" ? State::kUnknown : gone.contains(peer) ? State::kGone : State::kConnected);
    }
    return states;
  }
  std::set<std::string> gone;
  int looks = 0;
};

class FakeSessions : public LeaseClient {
 public:
  std::vector<LeasedSession> ListLeased() override {
    std::vector<LeasedSession> all;
    for (auto& [handle, session] : sessions) all.push_back(session);
    return all;
  }
  void Expire(const std::string& handle, const Status& why) override {
    expired.push_back(handle);
    last_why = why;
    sessions.erase(handle);
  }
  std::map<std::string, LeasedSession> sessions;
  std::vector<std::string> expired;
  Status last_why;
};

class LeaseTest : public ::testing::Test {
 protected:
  void Open(const std::string& handle, const std::string& peer) {
    sessions_->sessions[handle] = {.handle = handle, .lease = std::make_shared<SessionLease>(), .idle = true};
    Call(handle, peer);
    monitor_->Poke();
  }
  void Call(const std::string& handle, const std::string& peer) {
    sessions_->sessions[handle].lease->Touch(CallFrom(peer));
  }
  void Pass(absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(1)) {
      clock_.Advance(absl::Seconds(1));
      timers_.Advance(absl::Seconds(1));
    }
  }

  VirtualClock clock_{absl::FromUnixSeconds(1000)};
  ManualTimers timers_;
  std::shared_ptr<FakeConnections> connections_ = std::make_shared<FakeConnections>();
  std::shared_ptr<FakeSessions> sessions_ = std::make_shared<FakeSessions>();
  LeaseOptions options_{
      .task = "t", .grace = absl::Seconds(30), .connections = connections_, .timers = &timers_, .clock = &clock_};
  std::shared_ptr<LeaseMonitor> monitor_ = LeaseMonitor::Make(options_, sessions_);
};

TEST_F(LeaseTest, EndsWithTheConnectionAfterTheGrace) {
  Open("a", "ipv4:1.2.3.4:5");
  Open("b", "ipv4:1.2.3.4:6");
  Pass(absl::Minutes(10));
  connections_->gone.insert("ipv4:1.2.3.4:5");
  Pass(absl::Seconds(29));
  EXPECT_THAT(sessions_->expired, ElementsAre());
  Pass(absl::Seconds(20));
  EXPECT_THAT(sessions_->expired, ElementsAre("a"));
  EXPECT_EQ(sessions_->last_why.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(sessions_->last_why.message()), HasSubstr("1.2.3.4:5"));
}

TEST_F(LeaseTest, GoesOnWhenTheClientComesBack) {
  Open("a", "old");
  connections_->gone.insert("old");
  Pass(absl::Seconds(20));
  Call("a", "new");
  Pass(absl::Minutes(5));
  EXPECT_THAT(sessions_->expired, ElementsAre());
  connections_->gone.insert("new");
  Pass(absl::Minutes(1));
  EXPECT_THAT(sessions_->expired, ElementsAre("a"));
}

TEST_F(LeaseTest, LastsWhileOneOfItsClientsIsThere) {
  Open("a", "first");
  Call("a", "second");
  Call("a", "first");
  EXPECT_EQ(sessions_->sessions["a"].lease->client(), "first");
  connections_->gone.insert("first");
  Pass(absl::Minutes(5));
  EXPECT_THAT(sessions_->expired, ElementsAre());
  connections_->gone.insert("second");
  Pass(absl::Minutes(1));
  EXPECT_THAT(sessions_->expired, ElementsAre("a"));
}

TEST_F(LeaseTest, LastsWhileAStepRuns) {
  Open("a", "peer");
  connections_->gone.insert("peer");
  sessions_->sessions["a"].idle = false;
  Pass(absl::Hours(1));
  EXPECT_THAT(sessions_->expired, ElementsAre());
  sessions_->sessions["a"].idle = true;
  Pass(absl::Seconds(25));
  EXPECT_THAT(sessions_->expired, ElementsAre());
  Pass(absl::Seconds(20));
  EXPECT_THAT(sessions_->expired, ElementsAre("a"));
}

TEST_F(LeaseTest, IsLongForAClientThatWasSilentLongBefore) {
  Open("a", "peer");
  Pass(absl::Minutes(30));
  connections_->gone.insert("peer");  // gRPC drops a connection that carried nothing for so long
  Pass(absl::Hours(11));
  EXPECT_THAT(sessions_->expired, ElementsAre());
  Pass(absl::Hours(2));
  EXPECT_THAT(sessions_->expired, ElementsAre("a"));
}

TEST_F(LeaseTest, NeverEndsForPeersOfWhomNobodyKnows) {
  Open("a", "inproc");
  Pass(absl::Hours(24));
  EXPECT_THAT(sessions_->expired, ElementsAre());
  EXPECT_GT(connections_->looks, 0);
}

TEST_F(LeaseTest, IsLookedAtOnlyWhileThereAreSessions) {
  Pass(absl::Minutes(10));
  EXPECT_EQ(connections_->looks, 0);
  Open("a", "peer");
  Pass(absl::Minutes(1));
  EXPECT_GT(connections_->looks, 0);
  sessions_->sessions.clear();
  Pass(absl::Minutes(1));
  const int looks = connections_->looks;
  Pass(absl::Minutes(10));
  EXPECT_EQ(connections_->looks, looks);
  Open("b", "peer");
  Pass(absl::Minutes(1));
  EXPECT_GT(connections_->looks, looks);
  monitor_->Stop();
  const int last = connections_->looks;
  Pass(absl::Minutes(10));
  EXPECT_EQ(connections_->looks, last);
}

}  // namespace
}  // namespace millrace
