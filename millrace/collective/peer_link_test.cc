#include "millrace/collective/peer_link.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace millrace::collective {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PeerLink, SendsInOrderWhatWasQueuedBeforeItOpened) {
  PeerLink link;
  std::vector<std::string> sent;
  link.Send(net::Bytes::Of("a"));
  link.Send(net::Bytes::Of("b"));
  EXPECT_FALSE(link.open());
  link.OpenCalls([&](const net::Bytes& message) { sent.push_back(message.Flatten()); });
  EXPECT_TRUE(link.open());
  link.Send(net::Bytes::Of("c"));
  link.Close(net::Bytes::Of("last"));
  link.Send(net::Bytes::Of("late"));
  EXPECT_THAT(sent, ElementsAre("a", "b", "c", "last"));
}

TEST(PeerLink, LosesNothingIfItIsClosedWhileItSendsWhatWasQueued) {
  PeerLink link;
  std::vector<std::string> sent;
  link.Send(net::Bytes::Of("a"));
  link.OpenCalls([&](const net::Bytes& message) {
    sent.push_back(message.Flatten());
    if (sent.size() > 1) return;
    // As another thread would, before the first message has left.
    link.Send(net::Bytes::Of("b"));
    link.Close(net::Bytes::Of("last"));
    link.Send(net::Bytes::Of("late"));
  });
  EXPECT_THAT(sent, ElementsAre("a", "b", "last"));
}

TEST(PeerLink, OneThatIsClosedDoesNotOpen) {
  PeerLink link;
  std::vector<std::string> sent;
  link.Send(net::Bytes::Of("a"));
  link.Close(net::Bytes::Of("last"));
  link.OpenCalls([&](const net::Bytes& message) { sent.push_back(message.Flatten()); });
  EXPECT_THAT(sent, IsEmpty());
}

}  // namespace
}  // namespace millrace::collective
