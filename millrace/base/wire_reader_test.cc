#include "millrace/base/wire_reader.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

std::string Text(std::initializer_list<int> bytes) { return std::string(bytes.begin(), bytes.end()); }

bool IsWellFormed(const std::string& message) {
  FlatSource source(message);
  WireReader in(&source);
  while (in.Next()) in.Skip();
  return in.ok();
}

TEST(WireReader, GivesFieldsOfEveryKind) {
  std::string message = Text({0x08, 0xac, 0x02});               // 1: 300
  message += Text({0x12, 0x02}) + "hi";                         // 2: "hi"
  message += Text({0x1d, 0x00, 0x00, 0x80, 0x3f});              // 3: 1.0f
  message += Text({0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x28, 0x01});  // 4: eight bytes, 5: 1
  FlatSource source(message);
  WireReader in(&source);
  ASSERT_TRUE(in.Next());
  EXPECT_EQ(in.tag(), VarintTag(1));
  EXPECT_EQ(in.number(), 300u);
  ASSERT_TRUE(in.Next());
  EXPECT_EQ(in.tag(), BytesTag(2));
  EXPECT_EQ(source.Take(in.size()), "hi");
  ASSERT_TRUE(in.Next());
  EXPECT_EQ(in.tag(), Fixed32Tag(3));
  EXPECT_EQ(std::bit_cast<float>(static_cast<uint32_t>(in.number())), 1.0f);
  ASSERT_TRUE(in.Next());
  EXPECT_EQ(in.field(), 4u);
  ASSERT_TRUE(in.Next());
  EXPECT_EQ(in.tag(), VarintTag(5));
  EXPECT_FALSE(in.Next());
  EXPECT_TRUE(in.ok());
}

TEST(WireReader, PassesOverGroupsWithinGroups) {
  EXPECT_TRUE(IsWellFormed(Text({0x0b, 0x13, 0x08, 0x01, 0x14, 0x0c, 0x08, 0x01})));
  EXPECT_FALSE(IsWellFormed(Text({0x0b, 0x08, 0x01})));  // without an end
  EXPECT_FALSE(IsWellFormed(Text({0x0b, 0x14})));        // the end of another
  EXPECT_FALSE(IsWellFormed(Text({0x0c})));              // an end alone
  EXPECT_FALSE(IsWellFormed(std::string(200, '\x0b')));  // deeper than protobuf goes
}

TEST(WireReader, RefusesWhatEndsTooEarly) {
  const std::string whole = Text({0x08, 0xac, 0x02, 0x12, 0x02, 'h', 'i', 0x1d, 0, 0, 0x80, 0x3f});
  const std::vector<size_t> ends = {0, 3, 7, 12};  // of fields
  for (size_t n = 0; n <= whole.size(); ++n) {
    const bool at_end = std::find(ends.begin(), ends.end(), n) != ends.end();
    EXPECT_EQ(IsWellFormed(whole.substr(0, n)), at_end) << n;
  }
}

TEST(WireReader, RefusesTagsAndNumbersThatAreNone) {
  EXPECT_FALSE(IsWellFormed(Text({0x00, 0x01})));                                // field 0
  EXPECT_FALSE(IsWellFormed(Text({0x0e, 0x01})));                                // wire type 6
  EXPECT_FALSE(IsWellFormed(Text({0x88, 0x80, 0x80, 0x80, 0x80, 0x00, 0x01})));  // a tag of six bytes
  EXPECT_FALSE(IsWellFormed('\x08' + std::string(11, '\xff')));
  EXPECT_TRUE(IsWellFormed('\x08' + std::string(9, '\xff') + '\x01'));
}

TEST(WireReader, AnErrorIsKept) {
  const std::string message = Text({0x00, 0x08, 0x01});
  FlatSource source(message);
  WireReader in(&source);
  EXPECT_FALSE(in.Next());
  EXPECT_FALSE(in.Next());
  EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace millrace
