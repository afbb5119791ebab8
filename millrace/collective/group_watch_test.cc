// How a group watches over its operations.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/collective/collective_testing.h"
#include "millrace/collective/group_core.h"

namespace millrace::collective {
namespace {

using ::testing::HasSubstr;

// What a call does before it is made. Takes `done` to answer the call itself, which is then not made.
using Interrupt = std::function<void(const std::string& method, net::Channel::Done* done)>;

// A transport whose calls do something else first.
class InterruptedTransport : public net::Transport {
 public:
  InterruptedTransport(std::unique_ptr<net::Transport> transport, Interrupt* interrupt)
      : transport_(std::move(transport)), interrupt_(interrupt) {}
  std::shared_ptr<net::Channel> Connect(const std::string& address) override {
    return std::make_shared<InterruptedChannel>(transport_->Connect(address), interrupt_);
  }
  StatusOr<std::unique_ptr<net::Listener>> Listen(const std::string& address, net::Service* service) override {
    return transport_->Listen(address, service);
  }

 private:
  class InterruptedChannel : public net::Channel {
   public:
    InterruptedChannel(std::shared_ptr<net::Channel> channel, Interrupt* interrupt)
        : net::Channel(channel->address()), channel_(std::move(channel)), interrupt_(interrupt) {}
    RefPtr<net::OutgoingCall> Call(const std::string& method, net::Bytes request, const net::CallOptions& options,
                                   Done done) override {
      if (const Interrupt interrupt = *interrupt_; interrupt != nullptr) interrupt(method, &done);
      if (done == nullptr) return nullptr;
      return channel_->Call(method, std::move(request), options, std::move(done));
    }
    net::StreamingChannel* streaming() override { return channel_->streaming(); }

   private:
    const std::shared_ptr<net::Channel> channel_;
    Interrupt* const interrupt_;
  };

  const std::unique_ptr<net::Transport> transport_;
  Interrupt* const interrupt_;
};

TEST(GroupWatch, AnOperationThatIsAboutToBeginIsNotDescribedYet) {
  constexpr int kSize = 4;
  ManualTime time;
  Interrupt interrupt;
  const auto network = net::NewInprocNetwork();
  const auto make = [&](int) {
    return std::make_unique<InterruptedTransport>(net::NewInprocTransport({.network = network}), &interrupt);
  };
  TestRanks ranks(kSize, make, [&](int, GroupOptions* options) { time.Use(options); });
  // A ring: rank 0 gets no link with rank 2. From now on there is a tick that looks after the operations of a rank.
  std::vector<std::vector<float>> values(kSize, std::vector<float>(8)), to = values;
  const Outcomes first = OnAll(ranks, [&](int rank, auto done) {
    ranks[rank].AllGather(ElementsOf(absl::MakeSpan(values[rank])), {}, {}, std::move(done));
  });
  for (int rank = 0; rank < kSize; ++rank) ASSERT_TRUE(first.status(rank).ok()) << first.status(rank);
  // It comes after the next operation has its number, and before it begins, on the way to rank 2.
  bool ticked = false;
  interrupt = [&](const std::string&, net::Channel::Done*) {
    interrupt = nullptr;
    time.PassSeconds(2);
    ticked = true;
  };
  Outcomes second(kSize);
  ranks[0].AllToAll(ElementsOf(absl::MakeSpan(values[0])), ElementsOf(absl::MakeSpan(to[0])),
                    {.key = "late", .timeout = absl::Milliseconds(1500)}, second.Done(0));
  EXPECT_TRUE(ticked);
  EXPECT_FALSE(second.here(0)) << second.status(0);
  time.PassSeconds(2);
  ASSERT_TRUE(second.here(0));
  EXPECT_TRUE(absl::IsDeadlineExceeded(second.status(0))) << second.status(0);
  EXPECT_THAT(std::string(second.status(0).message()), HasSubstr("all-to-all 'late'"));
}

// Rank 0 waits for rank 1, which is asked for a sign of life and does not answer in time.
class UnansweredPing : public ::testing::Test {
 protected:
  UnansweredPing() {
    // Both have been there: a rank that was never there may still join.
    const auto before = Start(0);
    Start(1);
    EXPECT_TRUE(before->here(0) && before->status(0).ok());
    first_ = Start(0);
    hold_ = [this](const std::string& method, net::Channel::Done* done) {
      if (method != kPingMethod) return;
      pings_.push_back(std::move(*done));
      *done = nullptr;
    };
  }

  void WaitForPing() {
    for (int i = 0; i < 10 && pings_.empty(); ++i) time_.PassSeconds(1);
    ASSERT_EQ(pings_.size(), 1u);
  }

  // Answers the ping as the transport does when its time-out has passed.
  void TimeOut() {
    ASSERT_EQ(pings_.size(), 1u);
    net::Channel::Done ping = std::move(pings_.front());
    pings_.clear();
    ping(DeadlineExceeded("no answer"));
  }

  std::shared_ptr<Outcomes> Start(int rank) {
    const auto outcome = std::make_shared<Outcomes>(2);
    values_[rank].assign(8, 1);
    ranks_[rank].AllReduce(ElementsOf(absl::MakeSpan(values_[rank])), Reduction{}, {}, outcome->Done(rank));
    return outcome;
  }

  ManualTime time_;
  std::vector<net::Channel::Done> pings_;
  Interrupt hold_, pass_;
  std::shared_ptr<net::InprocNetwork> network_ = net::NewInprocNetwork();
  TestRanks ranks_{2,
                   [this](int rank) {
                     return std::make_unique<InterruptedTransport>(net::NewInprocTransport({.network = network_}),
                                                                   rank == 0 ? &hold_ : &pass_);
                   },
                   [this](int, GroupOptions* options) {
                     time_.Use(options);
                     options->peer_timeout = absl::Seconds(5);
                   }};
  std::vector<float> values_[2];
  std::shared_ptr<Outcomes> first_;
};

TEST_F(UnansweredPing, FailsTheOperationAfterThePeerTimeout) {
  WaitForPing();
  time_.PassSeconds(5);
  TimeOut();
  ASSERT_TRUE(first_->here(0));
  EXPECT_TRUE(absl::IsUnavailable(first_->status(0))) << first_->status(0);
  EXPECT_THAT(std::string(first_->status(0).message()), HasSubstr("has not answered for 5s"));
}

// The job was suspended as a whole: rank 1 had no time to answer either.
TEST_F(UnansweredPing, ProvesNothingIfThisProcessStoodStillItself) {
  WaitForPing();
  time_.PassSeconds(180);
  TimeOut();
  EXPECT_FALSE(first_->here(0)) << first_->status(0);
  // It asks again, and goes on when rank 1 does.
  WaitForPing();
  const auto second = Start(1);
  ASSERT_TRUE(first_->here(0));
  EXPECT_TRUE(first_->status(0).ok()) << first_->status(0);
  EXPECT_TRUE(second->status(1).ok()) << second->status(1);
  EXPECT_EQ(values_[0], std::vector<float>(8, 2));
}

}  // namespace
}  // namespace millrace::collective
