// Utilities for tests of the step lane. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/net/transport_testing.h"

namespace millrace::net {

// A text in which a missing or misplaced piece is detectable.
inline std::string Pattern(size_t size) {
  std::string text(size, 'x');
  for (size_t i = 0; i < size; i += 997) text[i] = static_cast<char>(i * 31);
  return text;
}

inline std::unique_ptr<Transport> NewLane(LaneOptions options = {}) {
  return NewLaneTransport(NewGrpcTransport(), options);
}

// Makes calls until there is a lane; false if that takes too long.
inline bool HasLane(Channel& channel) {
  return WaitUntil([&] {
    if (channel.streaming() != nullptr) return true;
    Answer answer;
    channel.Call("/test.Service/None", {}, {.every_step = true}, answer.Done());
    answer.notification().Wait();
    return channel.streaming() != nullptr;
  });
}

inline StatusOr<Bytes> CallOn(Channel& channel, const std::string& method, Bytes request = {},
                              absl::Duration timeout = absl::Seconds(60)) {
  Answer answer;
  channel.Call(TestService::FullName(method), std::move(request), {.timeout = timeout, .every_step = true},
               answer.Done());
  answer.notification().Wait();
  return answer.result();
}

// The status of the only channel.
inline PeerStatus Outgoing(Transport& transport) {
  for (const PeerStatus& peer : transport.status().peers) {
    if (peer.outgoing) return peer;
  }
  return {};
}

class LaneTest : public ::testing::Test {
 protected:
  LaneTest() { service_.On("Echo", Echo).On("Hold", held_.Handler()); }

  // A server and a client with a lane between them.
  void Start(LaneOptions server = {}, LaneOptions client = {}) {
    server_ = NewLane(server);
    client_ = NewLane(client);
    auto listener = server_->Listen("localhost:0", &service_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    address_ = absl::StrCat("localhost:", listener_->port());
    channel_ = client_->Connect(address_);
  }
  void StartWithLane(LaneOptions server = {}, LaneOptions client = {}) {
    Start(server, client);
    ASSERT_TRUE(HasLane(*channel_));
  }

  HeldCalls held_;
  TestService service_;
  std::unique_ptr<Transport> server_;
  std::unique_ptr<Transport> client_;
  std::unique_ptr<Listener> listener_;
  std::string address_;
  std::shared_ptr<Channel> channel_;
};

}  // namespace millrace::net
