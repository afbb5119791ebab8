// When a sender is told that its memory has been read.
#include <atomic>

#include "millrace/net/lane/lane_testing.h"

namespace millrace::net {
namespace {

class LaneReleaseTest : public LaneTest {
 protected:
  // A call that streams, with the server's end of it.
  void SetUp() override {
    StartWithLane();
    ASSERT_EQ(Outgoing(*client_).kind, "shm");
    call_ = channel_->streaming()->Stream(
        TestService::FullName("Hold"), {}, {}, [this](const Bytes&) { ++arrived_; }, answer_.Done());
    ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
    served_ = held_.Take();
    served_->stream()->OnMessage([](const Bytes&) {});
  }
  void TearDown() override {
    if (served_ != nullptr) Reply();
    EXPECT_TRUE(WaitUntil([&] { return alive_ == 0; }));
  }
  void Reply() {
    served_->Reply(Bytes());
    served_ = nullptr;
    answer_.notification().Wait();
  }
  // From the server to the client, which has it when this returns.
  void Give(size_t size) {
    const int before = arrived_;
    const auto memory = MakeRef<Counted>(&alive_, size);
    Bytes message;
    message.Append(memory->text(), memory);
    served_->stream()->Send(std::move(message));
    ASSERT_TRUE(WaitUntil([&] { return arrived_ > before; }));
  }

  class Counted : public RefCounted {
   public:
    Counted(std::atomic<int>* alive, size_t size) : alive_(alive), text_(size, 'x') { ++*alive_; }
    const std::string& text() const { return text_; }

   private:
    ~Counted() override { --*alive_; }
    std::atomic<int>* const alive_;
    const std::string text_;
  };

  std::atomic<int> alive_{0};  // pieces that the server may not use again
  std::atomic<int> arrived_{0};
  Answer answer_;
  RefPtr<OutgoingStream> call_;
  std::shared_ptr<IncomingCall> served_;
};

TEST_F(LaneReleaseTest, ItRidesWithTheReadersNextMessage) {
  Give(200'000);
  EXPECT_EQ(alive_, 1);  // no message was made for it
  call_->Send(Bytes::Of("x"));
  EXPECT_TRUE(WaitUntil([&] { return alive_ == 0; }));
}

TEST_F(LaneReleaseTest, ItRidesWithAnotherCallToo) {
  Give(200'000);
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  EXPECT_TRUE(WaitUntil([&] { return alive_ == 0; }));
}

TEST_F(LaneReleaseTest, TheCallsEndDoesNotLeaveItBehind) {
  Give(200'000);
  Reply();
  EXPECT_TRUE(WaitUntil([&] { return alive_ == 0; }));
}

TEST_F(LaneReleaseTest, ACallThatIsGivenUpDoesNotLeaveItBehind) {
  Give(200'000);
  call_->Cancel();
  EXPECT_TRUE(WaitUntil([&] { return alive_ == 0; }));
}

TEST_F(LaneReleaseTest, MuchMemoryDoesNotWait) {
  Give(2'000'000);
  EXPECT_TRUE(WaitUntil([&] { return alive_ == 0; }));
  for (int i = 0; i < 20; ++i) Give(200'000);
  EXPECT_LE(alive_, 6);
}

}  // namespace
}  // namespace millrace::net
