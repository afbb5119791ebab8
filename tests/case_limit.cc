// Linked into every test program. A case that takes longer than MILLRACE_CASE_LIMIT seconds (of the build, or of the
// environment) ends the program with the case's name: ctest would kill it much later, and could not say which case
// hung.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace {

int64_t SecondsNow() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

int64_t LimitOfEnvironment() {
  const char* text = std::getenv("MILLRACE_CASE_LIMIT");
  const int64_t seconds = text == nullptr ? 0 : std::atoll(text);
  return seconds > 0 ? seconds : MILLRACE_CASE_LIMIT;
}

class CaseLimit : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& info) override {
    const std::string suite = info.test_suite_name();
    // Death tests fork, which another thread would make unsafe. They are the first to run.
    if (!watch_.joinable() && suite.find("DeathTest") == std::string::npos && pipe(ended_) == 0)
      watch_ = std::thread([this] { Watch(); });
    std::lock_guard<std::mutex> lock(mu_);
    running_ = suite + "." + info.name();
    began_ = SecondsNow();
  }
  void OnTestEnd(const testing::TestInfo&) override {
    std::lock_guard<std::mutex> lock(mu_);
    running_.clear();
  }
  void OnTestProgramEnd(const testing::UnitTest&) override {
    if (!watch_.joinable()) return;
    close(ended_[1]);
    watch_.join();
    close(ended_[0]);
  }

 private:
  void Watch() {
    pollfd ended = {ended_[0], POLLIN, 0};
    while (poll(&ended, 1, /*timeout=*/1000) <= 0) {
      std::lock_guard<std::mutex> lock(mu_);
      if (running_.empty() || SecondsNow() - began_ < limit_) continue;
      std::printf("\n[  FAILED  ] %s has not ended after %lld s: it hangs\n", running_.c_str(),
                  static_cast<long long>(limit_));
      std::fflush(stdout);
      std::abort();
    }
  }

  const int64_t limit_ = LimitOfEnvironment();
  int ended_[2] = {-1, -1};
  std::thread watch_;
  std::mutex mu_;
  std::string running_;  // empty between cases
  int64_t began_ = 0;
};

[[maybe_unused]] const bool added = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new CaseLimit);
  return true;
}();

}  // namespace
