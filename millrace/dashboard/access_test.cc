#include "millrace/dashboard/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::dashboard {
namespace {

using testing::HasSubstr;

const Access& TestAccess() {
  static const Access* const access = new Access({.token = "0123456789abcdef",
                                                  .cookie_name = "millrace_1",
                                                  .cookie_value = "fedcba9876543210",
                                                  .hosts = {"node7"}});
  return *access;
}

HttpRequest RequestWith(const std::string& host, const std::string& headers = "", const std::string& method = "GET") {
  return ParseHttpRequest(absl::StrCat(method, " /events HTTP/1.1\r\nHost: ", host, "\r\n", headers, "\r\n")).value();
}

constexpr char kBearer[] = "Authorization: Bearer 0123456789abcdef\r\n";
constexpr char kCookie[] = "Cookie: millrace_1=fedcba9876543210\r\n";

TEST(AccessTest, TheTokenOrTheCookieLetsIn) {
  EXPECT_TRUE(TestAccess().Check(RequestWith("localhost:1", kBearer), true).ok());
  EXPECT_TRUE(TestAccess().Check(RequestWith("localhost:1", kCookie), true).ok());
  for (const char* wrong : {"", "Authorization: Bearer 0123456789abcdeg\r\n", "Authorization: Bearer \r\n",
                            "Authorization: Basic 0123456789abcdef\r\n", "Cookie: millrace_1=\r\n",
                            "Cookie: millrace_1=0123456789abcdef\r\n", "Cookie: millrace_2=fedcba9876543210\r\n"}) {
    EXPECT_TRUE(absl::IsUnauthenticated(TestAccess().Check(RequestWith("localhost:1", wrong), true))) << wrong;
  }
  EXPECT_TRUE(TestAccess().Check(RequestWith("localhost:1"), false).ok());
}

TEST(AccessTest, OnlyTheServersOwnNamesAreAnswered) {
  for (const char* host : {"localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]:1", "node7", "node7:8443"})
    EXPECT_TRUE(TestAccess().Check(RequestWith(host, kBearer), true).ok()) << host;
  for (const char* host : {"evil.example", "localhost.evil.example:1", "127.0.0.1.evil.example", "10.0.0.1:1", "[::1",
                           "localhost:x", "", "node7.evil.example"})
    EXPECT_TRUE(absl::IsPermissionDenied(TestAccess().Check(RequestWith(host, kBearer), false))) << host;
}

TEST(AccessTest, PagesOfOtherOriginsAreRefused) {
  const auto check = [](const std::string& headers) {
    return TestAccess().Check(RequestWith("localhost:1", kCookie + headers), true);
  };
  EXPECT_TRUE(check("Origin: http://localhost:1\r\nSec-Fetch-Site: same-origin\r\n").ok());
  EXPECT_TRUE(check("Sec-Fetch-Site: none\r\n").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(check("Sec-Fetch-Site: cross-site\r\n")));
  EXPECT_TRUE(absl::IsPermissionDenied(check("Sec-Fetch-Site: same-site\r\n")));
  EXPECT_TRUE(absl::IsPermissionDenied(check("Origin: http://localhost:2\r\n")));
  EXPECT_TRUE(absl::IsPermissionDenied(check("Origin: null\r\n")));
}

TEST(AccessTest, NothingButGetAndHead) {
  EXPECT_TRUE(TestAccess().Check(RequestWith("localhost", kBearer, "HEAD"), true).ok());
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "get"})
    EXPECT_TRUE(absl::IsUnimplemented(TestAccess().Check(RequestWith("localhost", kBearer, method), true))) << method;
}

TEST(AccessTest, TheCookieIsForThisServersScriptsOnly) {
  EXPECT_EQ(TestAccess().SetCookie(false), "millrace_1=fedcba9876543210; Path=/; HttpOnly; SameSite=Strict");
  EXPECT_THAT(TestAccess().SetCookie(true), HasSubstr("; Secure"));
}

TEST(AccessTest, TokensAreRandomAndLongEnough) {
  EXPECT_EQ(RandomToken().size(), 32);
  EXPECT_NE(RandomToken(), RandomToken());
  EXPECT_TRUE(CheckToken(RandomToken()).ok());
  EXPECT_THAT(CheckToken("short").message(), HasSubstr("at least 16"));
  EXPECT_THAT(CheckToken("0123456789abcde f").message(), HasSubstr("letters, digits"));
}

}  // namespace
}  // namespace millrace::dashboard
