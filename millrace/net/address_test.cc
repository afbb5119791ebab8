#include "millrace/net/address.h"

#include <gtest/gtest.h>

namespace millrace::net {
namespace {

TEST(Address, IsAHostAndAPort) {
  EXPECT_EQ(ParseHostPort("some.host:2222")->host, "some.host");
  EXPECT_EQ(ParseHostPort("some.host:2222")->port, 2222);
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(JoinHostPort("::1", 5), "[::1]:5");
  EXPECT_EQ(JoinHostPort("a", 5), "a:5");
}

TEST(Address, WhatIsNoneIsQuotedInTheError) {
  for (const char* text : {"", "a", "a:", ":1", "a:b", "a:-1", "a:+1", "a:65536", "::1:5", "a b:1", "a/b:1", "a:1:2"}) {
    const Status status = ParseHostPort(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(text), absl::string_view::npos) << status;
  }
}

TEST(Address, LoopbackIsKnownByItsNames) {
  for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.1.2.3", "::1"})
    EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "128.0.0.1", "localhost.example", "127.example.org", "10.0.0.1"})
    EXPECT_FALSE(IsLoopback(host)) << host;
}

}  // namespace
}  // namespace millrace::net
