#include "millrace/dashboard/http_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::dashboard {
namespace {

using testing::HasSubstr;

StatusOr<HttpRequest> Parsed(const std::string& lines) { return ParseHttpRequest(lines + "\r\n\r\n"); }

TEST(HttpRequestTest, ARequestIsReadAsABrowserSendsIt) {
  const HttpRequest request = Parsed(
                                  "GET /output?task=worker%2F0&x=1 HTTP/1.1\r\nHost: localhost:41213\r\n"
                                  "Cookie: other=1; millrace_41213=abc ; x=y\r\nAccept:text/html")
                                  .value();
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/output");
  EXPECT_EQ(request.Parameter("task"), "worker/0");
  EXPECT_EQ(request.Parameter("none"), "");
  EXPECT_EQ(request.Header("host"), "localhost:41213");
  EXPECT_EQ(request.Cookie("millrace_41213"), "abc");
  EXPECT_EQ(request.Cookie("millrace"), "");
  EXPECT_TRUE(request.keep_alive);
}

TEST(HttpRequestTest, TheConnectionEndsIfTheClientSaysSo) {
  EXPECT_FALSE(Parsed("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close").value().keep_alive);
  EXPECT_FALSE(Parsed("GET / HTTP/1.0\r\nHost: a").value().keep_alive);
}

TEST(HttpRequestTest, MalformedRequestsAreRefusedAndNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"GET /", "request line"},
      {"GET  / HTTP/1.1\r\nHost: a", "request line"},
      {"GET http://evil/ HTTP/1.1\r\nHost: a", "not a path"},
      {"GET /a\x01 HTTP/1.1\r\nHost: a", "not a path"},
      {"GET /\xff HTTP/1.1\r\nHost: a", "not a path"},
      {"GET / HTTP/2.0\r\nHost: a", "only HTTP/1.0 and 1.1"},
      {"GET / HTTP/1.1", "one Host"},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b", "one Host"},
      {"GET / HTTP/1.1\r\nHost: a\r\n folded: b", "no name"},
      {"GET / HTTP/1.1\r\nHost: a\r\nX-Bad: a\nb", "control characters"},
      {"GET / HTTP/1.1\r\nHost : a", "no name"},
      {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3", "no body"},
      {"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked", "no body"},
  };
  for (const auto& [text, why] : cases) {
    EXPECT_THAT(Parsed(text).status().message(), HasSubstr(why)) << text;
  }
  std::string many = "GET / HTTP/1.1\r\nHost: a";
  for (int i = 0; i < 200; ++i) absl::StrAppend(&many, "\r\nX: y");
  EXPECT_THAT(Parsed(many).status().message(), HasSubstr("too many headers"));
  EXPECT_FALSE(ParseHttpRequest("").ok());
  EXPECT_FALSE(ParseHttpRequest("GET / HTTP/1.1\r\nHost: a\r\n\r\nmore").ok());
}

TEST(HttpRequestTest, AHeadIsCompleteWithItsEmptyLine) {
  EXPECT_EQ(HeadSize("GET / HTTP/1.1\r\n"), 0);
  EXPECT_EQ(HeadSize("A\r\n\r\nB"), 5);
}

TEST(HttpRequestTest, WhatIsNotEncodedRightIsTakenAsItIs) {
  EXPECT_EQ(Parsed("GET /?task=%zz%4 HTTP/1.1\r\nHost: a").value().Parameter("task"), "%zz%4");
  EXPECT_EQ(Parsed("GET /?task=%00%41 HTTP/1.1\r\nHost: a").value().Parameter("task"), std::string("\0A", 2));
}

}  // namespace
}  // namespace millrace::dashboard
