// The small parts of base/: status, clock, log, references, random numbers, checksums.
#include <gtest/gtest.h>

#include <string>

#include "millrace/base/clock.h"
#include "millrace/base/crc32c.h"
#include "millrace/base/log.h"
#include "millrace/base/philox.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"

namespace millrace {
namespace {

StatusOr<int> Half(int v) {
  if (v % 2 != 0) return InvalidArgument(v, " is odd");
  return v / 2;
}

Status Quarter(int v, int* out) {
  MR_ASSIGN_OR_RETURN(const int half, Half(v));
  MR_ASSIGN_OR_RETURN(*out, Half(half));
  MR_RETURN_IF_ERROR(absl::OkStatus());
  return absl::OkStatus();
}

TEST(StatusTest, MacrosPassTheFirstErrorOn) {
  int out = 0;
  EXPECT_TRUE(Quarter(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(Quarter(6, &out), absl::InvalidArgumentError("3 is odd"));
}

TEST(StatusTest, PrefixAndSuffixKeepTheCode) {
  EXPECT_EQ(WithPrefix("a: ", NotFound("x")), absl::NotFoundError("a: x"));
  EXPECT_EQ(WithSuffix(NotFound("x"), " (b)"), absl::NotFoundError("x (b)"));
  EXPECT_TRUE(WithPrefix("a: ", absl::OkStatus()).ok());
  EXPECT_TRUE(WithSuffix(absl::OkStatus(), "a").ok());
}

TEST(StatusDeathTest, CheckNamesTheCondition) { EXPECT_DEATH(MR_CHECK(1 + 1 == 3), "1 \\+ 1 == 3"); }

TEST(ClockTest, VirtualClockMovesWhenToldTo) {
  VirtualClock clock(absl::FromUnixSeconds(100));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(100));
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(clock.Now(), absl::FromUnixSeconds(105));
}

TEST(ClockTest, RealClockDoesNotStandBeforeTheYear2020) {
  EXPECT_GT(Clock::Real()->Now(), absl::FromUnixSeconds(1577836800));
}

TEST(LogTest, AMessageIsOneLineWithItsSeverity) {
  testing::internal::CaptureStderr();
  WriteLog(LogSeverity::kWarning, "worker/1 is slow");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.substr(0, 2), "W ");
  EXPECT_NE(line.find("] worker/1 is slow\n"), std::string::npos);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

class Counted : public RefCounted {
 public:
  explicit Counted(int* alive) : alive_(alive) { ++*alive_; }
  ~Counted() override { --*alive_; }

 private:
  int* alive_;
};

TEST(RefTest, LastReferenceDestroys) {
  int alive = 0;
  RefPtr<Counted> a = MakeRef<Counted>(&alive);
  EXPECT_TRUE(a->IsUnique());
  RefPtr<RefCounted> b = a;
  EXPECT_FALSE(a->IsUnique());
  a.reset();
  EXPECT_EQ(alive, 1);
  EXPECT_TRUE(b->IsUnique());
  b = nullptr;
  EXPECT_EQ(alive, 0);
}

// The known answers published with the algorithm.
TEST(PhiloxTest, FillGivesTheNumbersOfSingleCalls) {
  // The last stream starts where the counter's first word is about to overflow.
  for (const Philox& start : {Philox(3, 4), Philox({0xfffffff0u, 7, 8, 9}, {1, 2})}) {
    for (const int groups : {1, 31, 32, 33, 100}) {
      Philox filled = start, called = start;
      std::vector<uint32_t> numbers(groups * 4);
      filled.Fill(numbers.data(), groups);
      for (int i = 0; i < groups; ++i) {
        const Philox::Group group = called();
        for (int j = 0; j < 4; ++j) ASSERT_EQ(numbers[4 * i + j], group[j]) << groups << " " << i;
      }
      EXPECT_EQ(filled.counter(), called.counter());
    }
  }
}

TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0})(), (Philox::Group{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u})(),
            (Philox::Group{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0})(),
            (Philox::Group{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, SkipIsTheSameAsDrawing) {
  Philox drawn(42, 7), skipped(42, 7);
  for (int i = 0; i < 10; ++i) drawn();
  skipped.Skip(10);
  EXPECT_EQ(drawn(), skipped());
}

TEST(PhiloxTest, SkipCarriesThroughTheWholeCounter) {
  Philox p({0xffffffff, 0xffffffff, 0xffffffff, 1}, {0, 0});
  p.Skip(1);
  EXPECT_EQ(p.counter(), (Philox::Group{0, 0, 0, 2}));
  Philox q({1, 0, 0, 0}, {0, 0});
  q.Skip(0xffffffffffffffff);
  EXPECT_EQ(q.counter(), (Philox::Group{0, 0, 1, 0}));
}

TEST(Crc32cTest, GivesTheCheckValueAndItsMask) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(MaskCrc(Crc32c("123456789")), 0xc78ab0e5u);
  EXPECT_EQ(UnmaskCrc(0xc78ab0e5u), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(MaskCrc(0), 0xa282ead8u);
}

TEST(Crc32cTest, ExtendIsTheCrcOfBothPieces) {
  const std::string data(1000, 'q');
  for (size_t cut : {0, 1, 8, 500, 999, 1000}) {
    EXPECT_EQ(ExtendCrc32c(Crc32c(data.substr(0, cut)), data.substr(cut)), Crc32c(data));
  }
}

}  // namespace
}  // namespace millrace
