#include "millrace/dashboard/page_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/dashboard/merge_patch.h"
#include "millrace/dashboard/web_page.h"

namespace millrace::dashboard {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

Observation LookAtTwo(double loss) {
  Observation look = {.title = "job 7", .seconds = 12, .began = 1000};
  launch::JobReport job = {.pid = 7, .state = launch::RunState::kRunning, .seconds = 12};
  job.tasks = {{.task = "ps/0", .state = "running", .address = "localhost:1", .seconds_in_state = 10},
               {.task = "worker/0",
                .state = "running",
                .address = "localhost:2",
                .restarts = 1,
                .seconds_in_state = 9,
                .step = 812,
                .loss = loss,
                .steps_per_second = 40.25}};
  job.events = {{.number = 1, .seconds = 2, .kind = "start", .task = "ps/0", .text = "runs"}};
  job.checkpoint = launch::JobReport::Checkpoint{.task = "worker/0", .step = 800, .age_seconds = 5};
  look.job = job;
  return look;
}

TaskView PsView() {
  TaskView view = {.task = "/job:ps/replica:0/task:0", .address = "localhost:1"};
  view.status.set_task(view.task);
  view.status.set_now_micros(100'000'000);
  view.status.set_variable_count(1);
  view.status.set_variable_bytes(400);
  TaskStatus::Variable* variable = view.status.add_variables();
  variable->set_name("w");
  variable->set_dtype("float");
  variable->add_shape(100);
  variable->set_bytes(400);
  TaskStatus::Wait* wait = view.status.add_waits();
  wait->set_node("take");
  wait->set_what("1 gradient of worker/0");
  wait->set_peer("/job:worker/replica:0/task:0");
  wait->set_since_micros(96'000'000);
  return view;
}

TEST(PageStateTest, ALookShowsTasksWaitsVariablesAndTheCheckpoint) {
  Observation look = LookAtTwo(0.5);
  look.tasks = {PsView()};
  const json document = DescribeLook(look);
  EXPECT_EQ(document["order"], json({"ps/0", "worker/0"}));
  const json& worker = document["tasks"]["worker/0"];
  EXPECT_EQ(worker["step"], 812);
  EXPECT_EQ(worker["since"], 3);
  EXPECT_EQ(worker["restarts"], 1);
  EXPECT_EQ(document["waits"][0]["from"], "ps/0");
  EXPECT_EQ(document["waits"][0]["to"], "worker/0");
  EXPECT_EQ(document["waits"][0]["since"], 8);
  EXPECT_EQ(document["variables"]["ps/0"]["largest"][0]["name"], "w");
  EXPECT_EQ(document["checkpoint"]["step"], 800);
  EXPECT_EQ(document["checkpoint"]["at"], 7);
}

TEST(PageStateTest, ALossThatIsNotFiniteIsShownByItsName) {
  EXPECT_EQ(DescribeLook(LookAtTwo(std::nan("")))["tasks"]["worker/0"]["loss"], "NaN");
  EXPECT_EQ(DescribeLook(LookAtTwo(-INFINITY))["tasks"]["worker/0"]["loss"], "-Infinity");
  EXPECT_EQ(DescribeLook(LookAtTwo(1e308))["tasks"]["worker/0"]["loss"], 1e308);
  PageState state;
  state.Add(LookAtTwo(std::nan("")));
  EXPECT_EQ(state.document()["history"]["1"][4], 1);
  EXPECT_TRUE(state.document()["history"]["1"][3].is_null());
}

TEST(PageStateTest, ASuspendedTaskIsTheVerdictBeforeAnyoneWaits) {
  Observation look = LookAtTwo(0.5);
  look.job->tasks[1].phase = "suspended by SIGSTOP for 3 s";
  EXPECT_EQ(DescribeLook(look)["hang"]["cause"], "worker/0 is suspended by SIGSTOP for 3 s");
  look.ended = true;
  EXPECT_FALSE(DescribeLook(look).contains("hang"));
}

TEST(PageStateTest, EventsAreAddedOnceAndKept) {
  PageState state;
  state.Add(LookAtTwo(0.5));
  state.Add(LookAtTwo(0.4));
  Observation later = LookAtTwo(0.3);
  later.job->events = {
      {.number = 2, .seconds = 9, .kind = "save", .task = "worker/0", .text = "checkpoint of step 800"}};
  state.Add(later);
  EXPECT_EQ(state.document()["events"].size(), 2);
  EXPECT_EQ(state.last_event(), 2);
}

TEST(PageStateTest, TheDocumentHasNoNullMembers) {
  PageState state;
  state.Add(LookAtTwo(0.5));
  state.Add(LookAtTwo(0.4));
  const std::function<void(const json&)> check = [&](const json& value) {
    for (const auto& [key, member] : value.items()) {
      EXPECT_FALSE(value.is_object() && member.is_null()) << key;
      if (member.is_object()) check(member);
    }
  };
  check(state.document());
}

TEST(MergePatchTest, APatchMakesTheNewDocumentOfTheOld) {
  const json before = {{"a", 1}, {"b", {{"c", 2}, {"d", 3}}}, {"gone", "x"}, {"list", {1, 2}}};
  const json after = {{"a", 1}, {"b", {{"c", 5}, {"e", {{"f", 1}}}}}, {"list", {1}}};
  const json patch = MergePatch(before, after);
  json patched = before;
  patched.merge_patch(patch);
  EXPECT_EQ(patched, after);
  EXPECT_FALSE(patch.contains("a"));
  EXPECT_EQ(MergePatch(after, after), json::object());
}

TEST(SavedPageTest, TextOfProgramsStaysTextAndNothingIsAskedOfOthers) {
  json document = {{"title", "job 7"}, {"tasks", {{"worker/0", {{"phase", "</script><script>alert(1)</script>"}}}}}};
  const std::string page = SavedPage(document, {{"worker/0", "<img src=x onerror=alert(2)>\xff"}});
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script\\u003e"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, Not(HasSubstr("src=\"main.js\"")));
  EXPECT_THAT(page, Not(HasSubstr("href=\"style.css\"")));
  EXPECT_THAT(page, Not(HasSubstr("\nimport ")));
  EXPECT_THAT(page, Not(HasSubstr("\nexport ")));
}

TEST(WebFilesTest, CompressedFilesAreMuchSmaller) {
  const WebFile* const style = FindWebFile("style.css");
  const std::string packed = Gzip(style->text);
  EXPECT_GT(packed.size(), 100);
  EXPECT_LT(packed.size(), style->text.size() / 2);
  EXPECT_EQ(packed.substr(0, 2), "\x1f\x8b");
}

TEST(WebFilesTest, ThePageIsSmallAndAsksNoOtherHost) {
  size_t bytes = 0;
  for (const WebFile& file : WebFiles()) {
    bytes += file.text.size();
    for (const char* other :
         {"https://", "//cdn", "@import", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("})
      EXPECT_EQ(file.text.find(other), absl::string_view::npos) << file.name << " has " << other;
  }
  EXPECT_LT(bytes, 200'000);
  EXPECT_EQ(FindWebFile("../main.js"), nullptr);
  EXPECT_EQ(FindWebFile(""), nullptr);
}

}  // namespace
}  // namespace millrace::dashboard
