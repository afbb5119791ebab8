#include "millrace/launch/kubernetes_api.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(KubernetesApi, AnAnswerHasACodeAndABody) {
  const StatusOr<HttpAnswer> answer = ParseHttpAnswer("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}");
  ASSERT_EQ(answer.status(), absl::OkStatus());
  EXPECT_EQ(answer->code, 200);
  EXPECT_EQ(answer->body, "{}");
}

TEST(KubernetesApi, MalformedAnswersAreErrors) {
  for (const char* bytes : {"", "HTTP/1.0 200 OK", "HTTP/1.0 200 OK\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.0 abc\r\n\r\n",
                            "HTTP/1.0 -99 \r\n\r\n", "200 OK\r\n\r\n"})
    EXPECT_FALSE(ParseHttpAnswer(bytes).ok()) << bytes;
}

TEST(KubernetesApi, AJobEndsByItsConditions) {
  const auto end = [](const std::string& status) {
    return EndOfJob(R"({"kind": "Job", "status": )" + status + "}").value();
  };
  EXPECT_EQ(end("{}"), "");
  EXPECT_EQ(end(R"({"active": 2, "conditions": []})"), "");
  EXPECT_EQ(end(R"({"conditions": [{"type": "Suspended", "status": "True"}]})"), "");
  EXPECT_EQ(end(R"({"conditions": [{"type": "Complete", "status": "False"}]})"), "");
  EXPECT_EQ(end(R"({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"},
                                   {"type": "Complete", "status": "True"}]})"),
            "Complete");
  EXPECT_EQ(end(R"({"conditions": [{"type": "Failed", "status": "True"}]})"), "Failed");
  EXPECT_EQ(end(R"({"conditions": [3, {"type": 4, "status": "True"}]})"), "");
}

TEST(KubernetesApi, SomethingElseIsNoJob) {
  for (const char* text : {"", "[]", "{}", R"({"kind": "Status"})", R"({"kind": 3})", "{\"kind\": \"Job\""})
    EXPECT_FALSE(EndOfJob(text).ok()) << text;
}

}  // namespace
}  // namespace millrace
