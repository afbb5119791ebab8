#include "millrace/net/lane/out_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace::net {
namespace {

// Small messages are up to 10 bytes; the window is 100 bytes and the reserve another 20.
class OutQueueTest : public ::testing::Test {
 protected:
  OutQueueTest() { queue_.set_window(100); }

  bool Add(FrameKind kind, uint64_t call, size_t size) {
    return queue_.Add(MakeFrame({.kind = kind, .call = call}, Bytes::Of(std::string(size, 'x')), 0, 0));
  }
  // Writes everything in pieces of `most` bytes; the calls of the frames, in order.
  std::vector<uint64_t> WriteAll(size_t most) {
    std::vector<OutFrame> done;
    queue_.BeginWrite();
    while (!queue_.empty()) {
      iovec pieces[4];
      size_t total = 0;
      EXPECT_GT(queue_.Gather(pieces, 4, &total), 0u);
      queue_.Advance(std::min(most, total), &done);
    }
    EXPECT_FALSE(queue_.partly_written());
    std::vector<uint64_t> calls;
    for (const OutFrame& frame : done) calls.push_back(frame.header.call);
    return calls;
  }

  std::atomic<uint64_t> bytes_sent_{0};
  OutQueue queue_{{.small = 10, .reserve = 20}, &bytes_sent_};
};

TEST_F(OutQueueTest, FramesAreWrittenInOrderHoweverTheSocketTakesThem) {
  for (const size_t most : {size_t{1}, size_t{7}, size_t{1} << 20}) {
    for (uint64_t call = 1; call <= 6; ++call) EXPECT_TRUE(Add(FrameKind::kMessage, call, 10));
    EXPECT_EQ(WriteAll(most), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
    queue_.AddCredit(60);
  }
  EXPECT_GT(bytes_sent_, 180u);
}

TEST_F(OutQueueTest, WhatIsMoreThanTheWindowWaitsForCreditAndSmallOnesForMoreThanTheReserve) {
  EXPECT_TRUE(Add(FrameKind::kMessage, 1, 100));
  EXPECT_FALSE(Add(FrameKind::kMessage, 2, 50));
  EXPECT_TRUE(Add(FrameKind::kMessage, 3, 10));
  EXPECT_TRUE(Add(FrameKind::kMessage, 4, 10));
  EXPECT_FALSE(Add(FrameKind::kMessage, 5, 10));
  EXPECT_TRUE(Add(FrameKind::kCancel, 2, 0));  // never waits
  EXPECT_EQ(WriteAll(1000), (std::vector<uint64_t>{1, 3, 4, 2}));
  EXPECT_FALSE(queue_.AddCredit(50));
  EXPECT_TRUE(queue_.AddCredit(50));
  EXPECT_EQ(WriteAll(1000), (std::vector<uint64_t>{2, 5}));
}

TEST_F(OutQueueTest, AMessageLargerThanTheWindowGoesWhenTheOthersAreDone) {
  EXPECT_TRUE(Add(FrameKind::kMessage, 1, 60));
  EXPECT_FALSE(Add(FrameKind::kMessage, 2, 500));
  EXPECT_TRUE(queue_.AddCredit(60));
  EXPECT_EQ(WriteAll(100), (std::vector<uint64_t>{1, 2}));
}

TEST_F(OutQueueTest, WithinACallNothingPassesWhatWaits) {
  EXPECT_TRUE(Add(FrameKind::kMessage, 1, 100));
  EXPECT_FALSE(Add(FrameKind::kMessage, 2, 50));
  EXPECT_FALSE(Add(FrameKind::kMessage, 2, 1));
  EXPECT_FALSE(Add(FrameKind::kBye, 0, 0));  // it is the last
  EXPECT_TRUE(queue_.AddCredit(100));
  EXPECT_EQ(WriteAll(1000), (std::vector<uint64_t>{1, 2, 2, 0}));
}

TEST_F(OutQueueTest, WhatWaitsOfACallThatIsOverIsDropped) {
  EXPECT_TRUE(Add(FrameKind::kCall, 1, 100));
  EXPECT_FALSE(Add(FrameKind::kCall, 2, 90));
  EXPECT_FALSE(Add(FrameKind::kMessage, 2, 1));
  EXPECT_FALSE(Add(FrameKind::kCall, 3, 11));
  std::vector<OutFrame> dropped;
  bool unknown = false;
  EXPECT_FALSE(queue_.DropWaiting(1, &dropped, &unknown));
  EXPECT_TRUE(dropped.empty() && !unknown);
  EXPECT_FALSE(queue_.AddCredit(20));
  EXPECT_TRUE(queue_.DropWaiting(2, &dropped, &unknown));  // now there is room for the third
  EXPECT_EQ(dropped.size(), 2u);
  EXPECT_TRUE(unknown);
  EXPECT_EQ(WriteAll(1000), (std::vector<uint64_t>{1, 3}));
}

TEST_F(OutQueueTest, AnnouncedMemoryIsKeptUntilItIsReleased) {
  const uint64_t announcement = queue_.NextAnnouncement();
  EXPECT_TRUE(queue_.Add(MakeFrame({.kind = FrameKind::kMessage, .call = 1}, Bytes::Of(std::string(100'000, 'x')),
                                   /*read_from=*/1, announcement)));
  EXPECT_EQ(WriteAll(1000), (std::vector<uint64_t>{1}));
  EXPECT_EQ(queue_.Release(announcement).size(), 100'000u);
  EXPECT_EQ(queue_.Release(announcement).size(), 0u);
}

TEST_F(OutQueueTest, ThatMemoryWasReadMayWaitUnlessItIsMuch) {
  EXPECT_TRUE(queue_.can_wait());
  EXPECT_TRUE(Add(FrameKind::kReleased, 0, 0));
  queue_.Owe(1000);
  EXPECT_TRUE(queue_.can_wait());
  queue_.Owe(1 << 20);
  EXPECT_FALSE(queue_.can_wait());
  EXPECT_EQ(WriteAll(1000).size(), 1u);
  EXPECT_TRUE(queue_.can_wait());
  EXPECT_TRUE(Add(FrameKind::kReleased, 0, 0));
  EXPECT_TRUE(Add(FrameKind::kMessage, 1, 1));
  EXPECT_FALSE(queue_.can_wait());
}

TEST_F(OutQueueTest, AtTheEndEverythingIsGivenAway) {
  EXPECT_TRUE(Add(FrameKind::kMessage, 1, 100));
  EXPECT_FALSE(Add(FrameKind::kMessage, 2, 50));
  std::vector<OutFrame> frames;
  std::vector<Bytes> announced;
  queue_.TakeQueued(&frames);
  EXPECT_EQ(frames.size(), 1u);
  EXPECT_TRUE(queue_.empty());
  queue_.TakeRest(&frames, &announced);
  EXPECT_EQ(frames.size(), 2u);
  EXPECT_TRUE(announced.empty());
}

}  // namespace
}  // namespace millrace::net
