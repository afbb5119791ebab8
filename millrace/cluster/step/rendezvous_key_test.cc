#include "millrace/cluster/step/rendezvous_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr char kKey[] =
    "/job:ps/replica:0/task:0/device:CPU:0;56d93a2aa9cece36;/job:worker/replica:0/task:0/device:CPU:0;edge_4_w/"
    "read;18186195969791715286:2";

TEST(ParsedKeyTest, GivesTheParts) {
  const ParsedKey key = ParsedKey::Parse(kKey).value();
  EXPECT_EQ(key.send_task, "/job:ps/replica:0/task:0");
  EXPECT_EQ(key.recv_task, "/job:worker/replica:0/task:0");
  EXPECT_EQ(key.tensor, "edge_4_w/read");
  EXPECT_EQ(key.incarnation, 0x56d93a2aa9cece36u);
}

TEST(ParsedKeyTest, SaysWhatIsNoKey) {
  const std::string good = kKey;
  std::string not_hexadecimal = good;
  not_hexadecimal[good.find("56d9")] = 'x';
  for (const std::string& bad : {std::string(), good + ";", good.substr(1, good.size() / 2), std::string("a;b;c;d;e"),
                                 not_hexadecimal, good + "x", good.substr(0, good.rfind(':'))}) {
    const StatusOr<ParsedKey> key = ParsedKey::Parse(bad);
    ASSERT_FALSE(key.ok()) << bad;
    EXPECT_TRUE(absl::IsInvalidArgument(key.status()));
    EXPECT_THAT(std::string(key.status().message()), HasSubstr("rendezvous key"));
  }
}

TEST(RendezvousKeyTest, NamesTheTensorAsTheGraphDoes) {
  EXPECT_EQ(SentTensorName("edge_12_layer1/read"), "layer1/read");
  EXPECT_EQ(SentTensorName("edge_12"), "12");
  EXPECT_EQ(SentTensorName("x:0"), "x:0");
}

}  // namespace
}  // namespace millrace
