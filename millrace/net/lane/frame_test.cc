#include "millrace/net/lane/frame.h"

#include <gtest/gtest.h>

#include <cstring>

#include "absl/strings/match.h"
#include "millrace/base/crc32c.h"
#include "millrace/net/lane/frame_parser.h"
#include "millrace/net/lane/receive_pool.h"

namespace millrace::net {
namespace {

std::string Wire(const OutFrame& frame) { return frame.head + frame.bulk.Flatten(); }

// Feeds at most `step` bytes at a time.
StatusOr<std::vector<Frame>> ParseAll(FrameParser* parser, absl::string_view bytes, size_t step = SIZE_MAX) {
  std::vector<Frame> frames;
  while (!bytes.empty()) {
    size_t put = 0;
    for (const iovec& room : parser->Room()) {
      const size_t size = std::min({room.iov_len, bytes.size() - put, step - put});
      std::memcpy(room.iov_base, bytes.data() + put, size);
      put += size;
    }
    bytes.remove_prefix(put);
    MR_RETURN_IF_ERROR(parser->Parse(put, &frames));
  }
  return frames;
}

StatusOr<std::vector<Frame>> ParseAll(absl::string_view bytes, size_t step = SIZE_MAX, bool remote = false) {
  FrameParser parser({}, Allocator::Heap());
  parser.set_remote_allowed(remote);
  return ParseAll(&parser, bytes, step);
}

Bytes Pieces(std::initializer_list<size_t> sizes) {
  Bytes bytes;
  char letter = 'a';
  for (const size_t size : sizes) bytes.Append(Bytes::Of(std::string(size, letter++)));
  return bytes;
}

TEST(FrameTest, FramesArriveWholeHoweverTheyAreCut) {
  const Bytes message = Pieces({10, 5000, 3, 4, 100'000, 1});
  const std::string wire =
      Wire(MakeFrame({.kind = FrameKind::kCall, .flags = 1, .method = 7, .call = 3, .argument = 99}, message, 0, 0)) +
      Wire(MakeFrame({.kind = FrameKind::kCancel, .call = 3}, {}, 0, 0)) +
      Wire(MakeFrame({.kind = FrameKind::kMessage, .call = 3}, Pieces({7}), 0, 0));
  for (const size_t step : {size_t{1}, size_t{47}, size_t{48}, size_t{4097}, size_t{65536}, SIZE_MAX}) {
    auto frames = ParseAll(wire, step);
    ASSERT_TRUE(frames.ok()) << frames.status();
    ASSERT_EQ(frames->size(), 3);
    Frame& call = (*frames)[0];
    EXPECT_EQ(call.header.method, 7);
    EXPECT_EQ(call.header.argument, 99);
    EXPECT_EQ(call.message.size, message.size());
    EXPECT_TRUE(call.message.Take().Flatten() == message.Flatten());
    EXPECT_EQ((*frames)[1].header.kind, FrameKind::kCancel);
    EXPECT_EQ((*frames)[2].message.Take().Flatten(), "aaaaaaa");
  }
}

TEST(FrameTest, LargePiecesKeepTheirBordersAndGetAlignedMemoryOfTheirOwn) {
  auto frames = ParseAll(Wire(MakeFrame({.kind = FrameKind::kAnswer}, Pieces({10, 5000, 20, 30, 70'000}), 0, 0)));
  ASSERT_TRUE(frames.ok()) << frames.status();
  const Bytes bytes = (*frames)[0].message.Take();
  ASSERT_EQ(bytes.pieces().size(), 4);  // the two small neighbours became one
  EXPECT_EQ(bytes.pieces()[2].data.size(), 50);
  for (const int i : {1, 3}) {
    const auto* buffer = dynamic_cast<const Buffer*>(bytes.pieces()[i].owner.get());
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(buffer->data(), bytes.pieces()[i].data.data());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0);
  }
}

TEST(FrameTest, AnnouncedPiecesStayWhereTheyAre) {
  const Bytes message = Pieces({10, 100'000, 5});
  const OutFrame out = MakeFrame({.kind = FrameKind::kAnswer}, message, 50'000, 17);
  EXPECT_LT(Wire(out).size(), 300);
  EXPECT_EQ(out.announced.size(), 100'000);
  auto frames = ParseAll(Wire(out), SIZE_MAX, /*remote=*/true);
  ASSERT_TRUE(frames.ok()) << frames.status();
  const Received& received = (*frames)[0].message;
  EXPECT_EQ(received.announcement, 17);
  ASSERT_EQ(received.parts.size(), 3);
  EXPECT_EQ(received.parts[1].address, reinterpret_cast<uintptr_t>(message.pieces()[1].data.data()));
  EXPECT_EQ(received.parts[1].size, 100'000);
  EXPECT_EQ(received.size, message.size());
  EXPECT_FALSE(ParseAll(Wire(out)).ok()) << "memory was not agreed on";
}

TEST(FrameTest, AMessageOfVeryManyPiecesArrivesWhole) {
  Bytes message;
  for (int i = 0; i < 20'000; ++i) message.Append(Bytes::Of(std::string(i % 2 == 0 ? 4096 : 1, static_cast<char>(i))));
  auto frames = ParseAll(Wire(MakeFrame({.kind = FrameKind::kAnswer}, message, 0, 0)));
  ASSERT_TRUE(frames.ok()) << frames.status();
  EXPECT_TRUE((*frames)[0].message.Take().Flatten() == message.Flatten());
}

TEST(FrameTest, EveryChangedBitOfAHeadIsNoticed) {
  const OutFrame frame =
      MakeFrame({.kind = FrameKind::kCall, .method = 1, .call = 5, .argument = 12}, Pieces({20, 5000}), 0, 0);
  for (size_t bit = 0; bit < frame.head.size() * 8; ++bit) {
    OutFrame changed = frame;
    changed.head[bit / 8] ^= static_cast<char>(1 << bit % 8);
    // What makes it longer may leave it unfinished.
    auto frames = ParseAll(Wire(changed));
    ASSERT_TRUE(!frames.ok() || frames->empty()) << "bit " << bit;
  }
}

// The checksum of what a bug or an attacker made is right.
std::string WithChecksum(FrameHeader header, const std::vector<FrameSegment>& segments, const std::string& rest = "") {
  header.segments = static_cast<uint32_t>(segments.size());
  header.crc = 0;
  std::string text(reinterpret_cast<const char*>(&header), sizeof(header));
  for (const FrameSegment& segment : segments) text.append(reinterpret_cast<const char*>(&segment), sizeof(segment));
  text += rest;
  const uint32_t crc = Crc32c(text);
  std::memcpy(text.data(), &crc, sizeof(crc));
  return text;
}

TEST(FrameTest, WhatASegmentTableSaysIsCheckedBeforeMemoryIsTaken) {
  const auto segment = [](uint64_t place, uint64_t size, uint64_t address = 0) {
    return FrameSegment{place << FrameSegment::kSizeBits | size, address};
  };
  const FrameHeader call{.kind = FrameKind::kCall, .call = 1};
  const auto with = [&](uint32_t small, uint64_t bulk, uint64_t announcement = 0) {
    FrameHeader header = call;
    header.small_bytes = small;
    header.bulk_bytes = bulk;
    header.announcement = announcement;
    return header;
  };
  const std::string cases[] = {
      WithChecksum(with(0, 5), {segment(FrameSegment::kBulk, 6)}),
      WithChecksum(with(0, 7), {segment(FrameSegment::kBulk, 6)}),
      WithChecksum(with(3, 0), {segment(FrameSegment::kSmall, 4)}, "abc"),
      WithChecksum(with(3, 0), {segment(FrameSegment::kSmall, 2)}, "abc"),
      WithChecksum(with(3, 0), {}, "abc"),
      WithChecksum(with(0, 0), {segment(FrameSegment::kSmall, 0)}),
      WithChecksum(with(0, 0), {segment(3, 10)}),
      WithChecksum(with(0, 0, 1), {segment(FrameSegment::kRemote, 10, 0)}),
      WithChecksum(with(0, 0, 0), {segment(FrameSegment::kRemote, 10, 0x1000)}),
      WithChecksum(with(0, 0, 1), {}),
      WithChecksum(with(0, uint64_t{1} << 61), {segment(FrameSegment::kBulk, uint64_t{1} << 61)}),
      WithChecksum(with(0, 0, 1), {segment(FrameSegment::kRemote, (uint64_t{1} << 62) - 1, 0x1000),
                                   segment(FrameSegment::kRemote, (uint64_t{1} << 62) - 1, 0x1000)}),
  };
  for (const std::string& bytes : cases) {
    const auto frames = ParseAll(bytes, SIZE_MAX, /*remote=*/true);
    EXPECT_EQ(frames.status().code(), absl::StatusCode::kInvalidArgument) << &bytes - cases << ": " << frames.status();
  }
  EXPECT_FALSE(ParseAll("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody\r\n\r\n").ok());
}

TEST(ReceivePoolTest, ABlockThatComesBackIsUsedAgain) {
  auto pool = MakeRef<ReceivePool>(1 << 20);
  RefPtr<Buffer> first = pool->Allocate(100'000);
  EXPECT_EQ(first->size(), 100'000);
  EXPECT_NE(dynamic_cast<ReceivedBuffer*>(first.get()), nullptr);
  void* const data = first->data();
  EXPECT_EQ(pool->in_use(), 1);
  first.reset();
  EXPECT_EQ(pool->in_use(), 0);
  EXPECT_GE(pool->kept(), 100'000);
  EXPECT_EQ(pool->Allocate(99'000)->data(), data);
  EXPECT_EQ(pool->Allocate(size_t{1} << 63), nullptr);
}

TEST(ReceivePoolTest, WhatIsKeptIsBounded) {
  auto pool = MakeRef<ReceivePool>(1 << 20);
  std::vector<RefPtr<Buffer>> buffers;
  for (int i = 0; i < 20; ++i) buffers.push_back(pool->Allocate(100'000 + i * 10'000));
  buffers.push_back(pool->Allocate(2 << 20));
  buffers.clear();
  EXPECT_LE(pool->kept(), 1 << 20);
  EXPECT_GT(pool->kept(), 500'000);
  RefPtr<Buffer> last = pool->Allocate(5000);
  pool.reset();
  last.reset();  // the pool lives as long as its buffers
}

}  // namespace
}  // namespace millrace::net
