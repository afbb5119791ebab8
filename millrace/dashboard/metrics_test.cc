#include "millrace/dashboard/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::dashboard {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(MetricsTest, TasksAreLabelledByJobAndTask) {
  const json document = {{"tasks",
                          {{"worker/12", {{"state", "running"}, {"step", 812}, {"loss", "NaN"}}},
                           {"ps/0", {{"state", "failed"}, {"restarts", 2}, {"memory_bytes", 1.5e12}}}}},
                         {"began", 1000},
                         {"checkpoint", {{"step", 800}, {"at", 7}}},
                         {"hang", {{"cause", "x"}}}};
  const std::string text = MetricsText(document, {});
  EXPECT_THAT(text,
              HasSubstr("# TYPE millrace_steps_total counter\nmillrace_steps_total{job=\"worker\",task=\"12\"} 812\n"));
  EXPECT_THAT(text, HasSubstr("millrace_loss{job=\"worker\",task=\"12\"} NaN\n"));
  EXPECT_THAT(text, HasSubstr("millrace_task_up{job=\"ps\",task=\"0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("millrace_task_restarts_total{job=\"ps\",task=\"0\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("millrace_task_memory_bytes{job=\"ps\",task=\"0\"} 1500000000000\n"));
  EXPECT_THAT(text, HasSubstr("millrace_tasks{state=\"failed\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("millrace_checkpoint_timestamp_seconds 1007\n"));
  EXPECT_THAT(text, HasSubstr("millrace_hang 1\n"));
}

TEST(MetricsTest, ALabelIsEscaped) {
  const json document = {{"tasks", {{"a\"b\\c\nd/0", {{"step", 1}}}}}};
  EXPECT_THAT(MetricsText(document, {}), HasSubstr("{job=\"a\\\"b\\\\c\\nd\",task=\"0\"} 1\n"));
}

TEST(MetricsTest, AnEmptyDocumentGivesMetricsOfNothing) {
  EXPECT_THAT(MetricsText(json::object(), {.viewers = 3}), HasSubstr("millrace_dashboard_viewers 3\n"));
}

}  // namespace
}  // namespace millrace::dashboard
