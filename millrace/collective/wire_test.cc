#include "millrace/collective/wire.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

OperationSpec SomeSpec() {
  return {.kind = OperationKind::kAllReduce,
          .key = "grads",
          .dtype = DType::kHalf,
          .reduction = Reduction::kMax,
          .algorithm = AlgorithmKind::kRing,
          .count = 12345678901,
          .root = 3,
          .layout = ~uint64_t{0}};
}

TEST(Wire, AMessageArrivesAsItWasSent) {
  Message sent{.kind = MessageKind::kData, .borrowed = true, .sequence = 1 << 20, .index = 300, .spec = SomeSpec()};
  net::Bytes bytes = net::Bytes::Of(EncodeHead(sent));
  bytes.Append(net::Bytes::Of("payload"));
  const Message got = DecodeMessage(bytes).value();
  EXPECT_EQ(got.kind, sent.kind);
  EXPECT_EQ(got.borrowed, sent.borrowed);
  EXPECT_EQ(got.sequence, sent.sequence);
  EXPECT_EQ(got.index, sent.index);
  EXPECT_EQ(got.spec, sent.spec);
  EXPECT_EQ(got.payload.Flatten(), "payload");
}

TEST(Wire, LentMemoryIsNamedByItsAddress) {
  Message sent{.borrowed = true, .sequence = 3, .index = 4, .address = 0x7fff12345678, .lent_bytes = 1 << 20};
  const std::string head = EncodeHead(sent);
  const Message got = DecodeMessage(net::Bytes::Of(head)).value();
  EXPECT_EQ(got.address, sent.address);
  EXPECT_EQ(got.payload_size(), size_t{1} << 20);
  EXPECT_FALSE(DecodeMessage(net::Bytes::Of(head + "x")).ok()) << "bytes behind what is elsewhere";
  for (size_t size = 0; size < head.size(); ++size)
    EXPECT_FALSE(DecodeMessage(net::Bytes::Of(head.substr(0, size))).ok()) << size;
  EXPECT_FALSE(got.shared);
  sent.shared = true;
  EXPECT_TRUE(DecodeMessage(net::Bytes::Of(EncodeHead(sent)))->shared);
  sent.kind = MessageKind::kDone;
  EXPECT_FALSE(DecodeMessage(net::Bytes::Of(EncodeHead(sent))).ok());
  EXPECT_FALSE(DecodeMessage(net::Bytes::Of(EncodeHead({.shared = true}))).ok()) << "it is nowhere";
}

TEST(Wire, EveryCutHeadIsRefused) {
  const std::string head = EncodeHead({.kind = MessageKind::kReady, .sequence = 1000, .index = 1, .spec = SomeSpec()});
  for (size_t size = 0; size < head.size(); ++size)
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeMessage(net::Bytes::Of(head.substr(0, size))).status())) << size;
}

TEST(Wire, UnknownKindsAndFlagsAreRefused) {
  EXPECT_FALSE(DecodeMessage(net::Bytes::Of(std::string("\x07\x00\x00\x00", 4))).ok());
  EXPECT_FALSE(DecodeMessage(net::Bytes::Of(std::string("\x00\x10\x00\x00", 4))).ok());
  EXPECT_TRUE(DecodeMessage(net::Bytes::Of(std::string("\x00\x00\x00\x00", 4))).ok());
}

TEST(Wire, ASenderArrivesAsItWasSentAndACutOneIsRefused) {
  const std::string text = EncodeSender({.group = "g", .rank = 3, .size = 7, .incarnation = 1234567, .by_calls = true});
  for (size_t size = 0; size < text.size(); ++size) {
    const net::Bytes cut = net::Bytes::Of(text.substr(0, size));
    net::BytesReader reader(cut);
    Sender sender;
    EXPECT_FALSE(ReadSender(&reader, &sender)) << size;
  }
  const net::Bytes whole = net::Bytes::Of(text);
  net::BytesReader reader(whole);
  Sender sender;
  ASSERT_TRUE(ReadSender(&reader, &sender));
  EXPECT_EQ(sender.group, "g");
  EXPECT_EQ(sender.rank, 3);
  EXPECT_EQ(sender.size, 7);
  EXPECT_EQ(sender.incarnation, 1234567);
  EXPECT_TRUE(sender.by_calls);
}

TEST(Wire, AStatusKeepsItsCodeAndMessage) {
  const Status status = Unavailable("rank 3 is lost");
  EXPECT_EQ(DecodeStatus(net::Bytes::Of(EncodeStatus(status))), status);
  EXPECT_FALSE(DecodeStatus(net::Bytes()).ok());
  EXPECT_FALSE(DecodeStatus(net::Bytes::Of(std::string(1, '\0'))).ok()) << "OK is not a reason";
}

TEST(Operation, ADifferenceNamesBothRanksAndWhatTheyDo) {
  OperationSpec other = SomeSpec();
  EXPECT_TRUE(CheckSame("rank 0", SomeSpec(), "rank 1", other).ok());
  other.count = 99;
  const Status counts = CheckSame("rank 0", SomeSpec(), "rank 1", other);
  EXPECT_THAT(std::string(counts.message()),
              AllOf(HasSubstr("rank 0 has all-reduce 'grads' (max of 12345678901 half, ring)"),
                    HasSubstr("rank 1 has all-reduce 'grads' (max of 99 half, ring)")));
  other = SomeSpec();
  other.key = "loss";
  EXPECT_THAT(std::string(CheckSame("rank 0", SomeSpec(), "rank 1", other).message()), HasSubstr("order"));
  other = SomeSpec();
  other.layout = 1;
  EXPECT_THAT(std::string(CheckSame("rank 0", SomeSpec(), "rank 1", other).message()), HasSubstr("hash 1"));
}

}  // namespace
}  // namespace millrace::collective
