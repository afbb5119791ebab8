// How a group watches over its operations.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/collective/collective_testing.h"

namespace millrace::collective {
namespace {

using ::testing::HasSubstr;

// A transport whose calls do something else first.
class InterruptedTransport : public net::Transport {
 public:
  InterruptedTransport(std::unique_ptr<net::Transport> transport, std::function<void()>* interrupt)
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
    InterruptedChannel(std::shared_ptr<net::Channel> channel, std::function<void()>* interrupt)
        : net::Channel(channel->address()), channel_(std::move(channel)), interrupt_(interrupt) {}
    RefPtr<net::OutgoingCall> Call(const std::string& method, net::Bytes request, const net::CallOptions& options,
                                   Done done) override {
      if (const auto interrupt = std::exchange(*interrupt_, nullptr); interrupt != nullptr) interrupt();
      return channel_->Call(method, std::move(request), options, std::move(done));
    }
    net::StreamingChannel* streaming() override { return channel_->streaming(); }

   private:
    const std::shared_ptr<net::Channel> channel_;
    std::function<void()>* const interrupt_;
  };

  const std::unique_ptr<net::Transport> transport_;
  std::function<void()>* const interrupt_;
};

TEST(GroupWatch, AnOperationThatIsAboutToBeginIsNotDescribedYet) {
  constexpr int kSize = 4;
  ManualTime time;
  std::function<void()> interrupt;
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
  interrupt = [&] {
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

}  // namespace
}  // namespace millrace::collective
