#include "millrace/cluster/collectives/buffer_exchange.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "millrace/cluster/collectives/buffer_codec.h"
#include "millrace/cluster/collectives/step_sequence.h"

namespace millrace {
namespace {

class BufferExchangeTest : public ::testing::Test {
 protected:
  void Offer(int64_t step, const std::string& key, const std::string& text) {
    exchange_.Offer(step, key, net::Bytes::Of(text), [this](Status status) { taken_.push_back(status); });
  }
  uint64_t Ask(int64_t step, const std::string& key, int64_t size) {
    return exchange_.Ask({.step_id = step, .key = key, .size = size, .receiver = "d"},
                         [this](StatusOr<net::Bytes> bytes) {
                           got_.push_back(bytes.ok() ? StatusOr<std::string>(bytes->Flatten()) : bytes.status());
                         });
  }

  BufferExchange exchange_;
  std::vector<Status> taken_;
  std::vector<StatusOr<std::string>> got_;
};

TEST_F(BufferExchangeTest, OfferAndRequestMeetInEitherOrder) {
  Offer(1, "a", "xy");
  EXPECT_TRUE(taken_.empty());
  EXPECT_EQ(Ask(1, "a", 2), 0u);
  EXPECT_NE(Ask(1, "b", 1), 0u);
  EXPECT_NE(Ask(2, "a", 1), 0u);
  Offer(1, "b", "z");
  ASSERT_EQ(got_.size(), 2u);
  EXPECT_EQ(*got_[0], "xy");
  EXPECT_EQ(*got_[1], "z");
  EXPECT_EQ(taken_.size(), 2u);
  EXPECT_EQ(exchange_.size(), 1u);
}

TEST_F(BufferExchangeTest, AnotherSizeIsAnErrorForBoth) {
  Offer(1, "a", "xy");
  Ask(1, "a", 3);
  EXPECT_TRUE(absl::IsInvalidArgument(got_[0].status()));
  EXPECT_TRUE(absl::StrContains(taken_[0].message(), "Shape mismatch")) << taken_[0];
  Ask(1, "b", -1);
  Offer(1, "b", "");
  EXPECT_TRUE(absl::IsInvalidArgument(got_[1].status()));
}

TEST_F(BufferExchangeTest, AKeyHasOneOfferAndOneRequest) {
  Offer(1, "a", "x");
  Offer(1, "a", "y");
  ASSERT_EQ(taken_.size(), 1u);
  EXPECT_TRUE(absl::IsInternal(taken_[0]));
  Ask(1, "b", 1);
  Ask(1, "b", 1);
  ASSERT_EQ(got_.size(), 1u);
  EXPECT_TRUE(absl::IsInternal(got_[0].status()));
}

TEST_F(BufferExchangeTest, AFailedStepEndsWhatWaitsAndWhatComesLater) {
  Offer(1, "a", "x");
  Ask(1, "b", 1);
  Ask(2, "b", 1);
  exchange_.FailStep(1, Unavailable("a member died"));
  exchange_.FailStep(1, Unavailable("another reason"));
  ASSERT_EQ(got_.size(), 1u);
  EXPECT_EQ(got_[0].status().message(), "a member died");
  EXPECT_EQ(taken_[0].message(), "a member died");
  Ask(1, "c", 1);
  EXPECT_EQ(got_[1].status().message(), "a member died");
  EXPECT_EQ(exchange_.size(), 1u);
}

TEST_F(BufferExchangeTest, AWithdrawnRequestIsGone) {
  const uint64_t request = Ask(1, "a", 1);
  exchange_.Withdraw(1, "a", request + 1, Cancelled("not this one"));
  EXPECT_TRUE(got_.empty());
  exchange_.Withdraw(1, "a", request, Cancelled("given up"));
  EXPECT_EQ(got_[0].status().message(), "given up");
  EXPECT_EQ(exchange_.size(), 0u);
}

TEST_F(BufferExchangeTest, WhatWaitsIsBounded) {
  for (size_t i = 0; i < BufferExchange::kMaxRequests; ++i) Ask(static_cast<int64_t>(i), "a", 1);
  EXPECT_TRUE(got_.empty());
  EXPECT_EQ(Ask(-1, "a", 1), 0u);
  EXPECT_TRUE(absl::IsResourceExhausted(got_[0].status()));
}

TEST(BufferCodec, ABufferSurvivesTheMessage) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{1} << 20}) {
    const std::string text(size, 'x');
    const StatusOr<net::Bytes> message = EncodeRecvBufResponse(net::Bytes::Of(text), 1234567);
    ASSERT_TRUE(message.ok());
    const StatusOr<net::Bytes> buffer = DecodeRecvBufResponse(*message);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->Flatten(), text);
  }
}

TEST(BufferCodec, EveryTruncationAndEveryFlippedByteIsAnErrorOrABuffer) {
  const std::string message = EncodeRecvBufResponse(net::Bytes::Of("0123456789"), 99)->Flatten();
  for (size_t length = 0; length < message.size(); ++length) {
    DecodeRecvBufResponse(net::Bytes::Of(message.substr(0, length))).status().IgnoreError();
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = message;
      flipped[length] = static_cast<char>(flipped[length] ^ (1 << bit));
      DecodeRecvBufResponse(net::Bytes::Of(flipped)).status().IgnoreError();
    }
  }
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeRecvBufResponse(net::Bytes()).status()));
}

TEST(StepSequences, MastersThatCountFromTheLeadersIdStayInStep) {
  StepSequences leader([] { return uint64_t{1000}; }), other([] { return uint64_t{5}; });
  EXPECT_EQ(*leader.Begin(7), 1000);
  // While the leader runs its first step, the other asks for the same.
  ASSERT_TRUE(other.Learn(7, *leader.Current(7)).ok());
  EXPECT_EQ(*other.Begin(7), 1000);
  leader.End(7, 1000);
  EXPECT_EQ(*leader.Current(7), 1001);
  EXPECT_EQ(*leader.Begin(7), 1001);
  EXPECT_EQ(*other.Begin(7), 1001);
}

}  // namespace
}  // namespace millrace
