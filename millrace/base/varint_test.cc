#include "millrace/base/varint.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr absl::string_view kExcess = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x03";

template <ExcessBits excess>
bool Decode(absl::string_view bytes, uint64_t* value) {
  size_t at = 0;
  const auto next = [&]() -> int { return at < bytes.size() ? static_cast<unsigned char>(bytes[at++]) : -1; };
  return DecodeVarint<excess>(next, value);
}

TEST(Varint, TakenFromTheFrontIsWhatWasPut) {
  std::string bytes;
  const uint64_t values[] = {0, 127, 128, uint64_t{1} << 35, UINT64_MAX};
  for (const uint64_t value : values) PutVarint(&bytes, value);
  absl::string_view rest = bytes;
  for (const uint64_t value : values) {
    uint64_t got = 0;
    ASSERT_TRUE(TakeVarint(&rest, &got));
    EXPECT_EQ(got, value);
  }
  EXPECT_TRUE(rest.empty());
}

TEST(Varint, BitsBeyondSixtyFourAreDroppedInMessagesAndRefusedElsewhere) {
  uint64_t value = 0;
  ASSERT_TRUE(Decode<ExcessBits::kDrop>(kExcess, &value));
  EXPECT_EQ(value, UINT64_MAX);
  EXPECT_FALSE(Decode<ExcessBits::kRefuse>(kExcess, &value));
}

TEST(Varint, AnEleventhByteIsRefused) {
  uint64_t value = 0;
  EXPECT_FALSE(Decode<ExcessBits::kDrop>(std::string(10, '\xff') + '\0', &value));
  EXPECT_FALSE(Decode<ExcessBits::kRefuse>(std::string(10, '\x80') + '\0', &value));
}

}  // namespace
}  // namespace millrace
