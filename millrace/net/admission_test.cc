// Connections that a listener keeps, and those that it refuses.
#include "millrace/net/admission.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "absl/strings/match.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::net {
namespace {

class AdmissionTest : public ::testing::Test {
 protected:
  // A connection whose bytes nobody reads; waits in the listener's queue.
  Fd Connect() {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(listeners_.port));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
    return fd;
  }
  Fd Accept() { return admission_.Accept(listeners_.sockets[0].get()); }
  // Makes a connection and accepts it; empty if it was refused.
  Fd Arrive() {
    clients_.push_back(Connect());
    return Accept();
  }
  TransportStatus status() {
    TransportStatus status;
    admission_.AddTo(&status);
    return status;
  }

  VirtualClock clock_;
  Admission admission_{{.what = "a test",
                        .handshake_timeout = absl::Seconds(10),
                        .unsettled_per_address = 3,
                        .unsettled = 5,
                        .clock = &clock_}};
  TcpListeners listeners_ = ListenTcp({"127.0.0.1", 0}).value();
  std::vector<Fd> clients_;
};

TEST_F(AdmissionTest, NothingPendingIsSaidByErrno) {
  EXPECT_FALSE(Accept().ok());
  EXPECT_TRUE(errno == EAGAIN || errno == EWOULDBLOCK);
  EXPECT_FALSE(Admission::OutOfResources(errno));
}

TEST_F(AdmissionTest, AnAddressMayHaveAFewConnectionsBeforeTheirHandshake) {
  std::vector<Fd> open;
  for (int i = 0; i < 3; ++i) {
    open.push_back(Arrive());
    ASSERT_TRUE(open.back().ok());
  }
  EXPECT_FALSE(Arrive().ok());
  EXPECT_EQ(status().incoming_connections, 3);
  EXPECT_EQ(status().excess_connections, 1u);
  EXPECT_TRUE(absl::StrContains(status().last_excess, "3 connections from 127.0.0.1")) << status().last_excess;
  // The refused one is closed at once.
  char byte;
  EXPECT_EQ(recv(clients_.back().get(), &byte, 1, 0), 0);

  // One makes a call, so that another may come; by name and by descriptor.
  admission_.Settle(PeerName(open[0].get()));
  admission_.Settle("ipv4:127.0.0.1:1");  // nobody
  open.push_back(Arrive());
  EXPECT_TRUE(open.back().ok());
  EXPECT_FALSE(Arrive().ok());
  admission_.SettleFd(open[1].get());
  open.push_back(Arrive());
  EXPECT_TRUE(open.back().ok());
  EXPECT_TRUE(admission_.has_unsettled());
  for (const Fd& fd : open) admission_.SettleFd(fd.get());
  EXPECT_FALSE(admission_.has_unsettled());
}

TEST_F(AdmissionTest, ConnectionsThatAreClosedMakeRoom) {
  std::vector<Fd> open;
  for (int i = 0; i < 3; ++i) open.push_back(Arrive());
  EXPECT_FALSE(Arrive().ok());
  open.clear();
  // The numbers of their descriptors are used again, by other sockets.
  const Fd others[] = {Connect(), Connect(), Connect()};
  clock_.Advance(absl::Seconds(1));
  for (int i = 0; i < 3; ++i) open.push_back(Accept());
  EXPECT_TRUE(open[0].ok() && open[1].ok() && open[2].ok());
  EXPECT_EQ(status().incoming_connections, 3);
}

TEST_F(AdmissionTest, ConnectionsThatOutlivedTheHandshakesTimeAreSettled) {
  std::vector<Fd> open;
  for (int i = 0; i < 3; ++i) open.push_back(Arrive());
  EXPECT_FALSE(Arrive().ok());
  clock_.Advance(absl::Seconds(11));
  for (int i = 0; i < 3; ++i) open.push_back(Arrive());
  EXPECT_TRUE(open[3].ok() && open[4].ok() && open[5].ok());
  EXPECT_FALSE(Arrive().ok());
}

}  // namespace
}  // namespace millrace::net
