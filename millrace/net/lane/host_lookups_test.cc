#include "millrace/net/lane/host_lookups.h"

#include <gmock/gmock.h>
#include <sys/eventfd.h>

#include <atomic>

#include "absl/strings/match.h"
#include "millrace/base/clock.h"
#include "millrace/base/fd.h"
#include "millrace/base/thread_group.h"
#include "millrace/net/address.h"
#include "millrace/net/lane/lane_testing.h"
#include "millrace/net/lane/sockets.h"

namespace millrace::net {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Time AnHourFromNow() { return Clock::Real()->Now() + absl::Hours(1); }

// A name server that answers only when told to. Its lookups have ended when it is destroyed.
class SlowResolver {
 public:
  ~SlowResolver() {
    Answer();
    EXPECT_TRUE(WaitUntil([&] { return state_->over == state_->asked; }));
  }
  HostResolver resolver() {
    return [state = state_](const std::string& host) -> StatusOr<std::vector<std::string>> {
      ++state->asked;
      state->answer.Wait();
      ++state->over;
      if (host == "nobody") return Unavailable("the host nobody is not known");
      return std::vector<std::string>{"127.0.0.1"};
    };
  }
  void Answer() { state_->answer.Notify(); }
  int asked() const { return state_->asked; }

 private:
  struct State {
    Notification answer;
    std::atomic<int> asked{0}, over{0};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(HostLookups, AnAddressIsNotLookedUp) {
  HostLookups lookups(
      [](const std::string& host) -> StatusOr<std::vector<std::string>> { return Internal("asked for ", host); });
  for (const char* address : {"127.0.0.1", "::1", "fe80::1%1"})
    EXPECT_THAT(lookups.Find(address, AnHourFromNow(), -1).value(), ElementsAre(address));
  EXPECT_THAT(lookups.Find("localhost", AnHourFromNow(), -1).status().message(), HasSubstr("asked for localhost"));
}

TEST(HostLookups, TheSystemKnowsThisHostAndNoOtherName) {
  HostLookups lookups;
  const auto found = lookups.Find("localhost", AnHourFromNow(), -1);
  ASSERT_EQ(found.status(), absl::OkStatus());
  for (const std::string& address : *found) EXPECT_TRUE(IsLoopback(address)) << address;
  // Malformed names fail without asking a name server.
  const Status unknown = lookups.Find("no such host", AnHourFromNow(), -1).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(unknown.message(), HasSubstr("no such host"));
}

TEST(HostLookups, WhoWaitsMayGoBeforeTheAnswer) {
  SlowResolver slow;
  const Fd stop(eventfd(1, EFD_CLOEXEC));
  {
    HostLookups lookups(slow.resolver());
    const Status late = lookups.Find("a", Clock::Real()->Now() + absl::Milliseconds(10), -1).status();
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(late.message(), HasSubstr("the host a"));
    EXPECT_EQ(lookups.Find("a", AnHourFromNow(), stop.get()).status().code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(WaitUntil([&] { return slow.asked() > 0; }));
    EXPECT_EQ(slow.asked(), 1) << "the second waits for the first's";
  }
  // What is under way goes on without it.
  slow.Answer();
}

TEST(HostLookups, AllWhoWaitForAHostGetItsAnswer) {
  SlowResolver slow;
  HostLookups lookups(slow.resolver());
  StatusOr<std::vector<std::string>> found[3];
  {
    ThreadGroup waiters("waiters");
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(waiters.Start([&, i] { found[i] = lookups.Find(i < 2 ? "a" : "nobody", AnHourFromNow(), -1); }));
    EXPECT_TRUE(WaitUntil([&] { return slow.asked() == 2; }));
    slow.Answer();
  }
  EXPECT_THAT(found[0].value(), ElementsAre("127.0.0.1"));
  EXPECT_THAT(found[1].value(), ElementsAre("127.0.0.1"));
  EXPECT_EQ(found[2].status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(LaneTest, AHandshakeDoesNotWaitForANameServerForEver) {
  SlowResolver slow;
  Start({}, {.kind = LaneKind::kTcp, .handshake_timeout = absl::Milliseconds(50), .resolver = slow.resolver()});
  EXPECT_TRUE(WaitUntil([&] {
    EXPECT_EQ(CallOn(*channel_, "Echo").status(), absl::OkStatus());
    return absl::StrContains(Outgoing(*client_).why_not_better, "the host localhost");
  })) << Outgoing(*client_).why_not_better;
  slow.Answer();
  EXPECT_TRUE(HasLane(*channel_));
}

TEST_F(LaneTest, ATransportEndsWhileANameServerDoesNotAnswer) {
  SlowResolver slow;
  Start({}, {.kind = LaneKind::kTcp, .handshake_timeout = absl::Hours(1), .resolver = slow.resolver()});
  EXPECT_EQ(CallOn(*channel_, "Echo").status(), absl::OkStatus());
  EXPECT_TRUE(WaitUntil([&] { return slow.asked() == 1; }));
  channel_.reset();
  client_.reset();
}

}  // namespace
}  // namespace millrace::net
