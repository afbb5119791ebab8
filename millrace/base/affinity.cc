#include "millrace/base/affinity.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace millrace {
namespace {

constexpr int kMostCores = 1 << 20;

thread_local CoreFollower* follower = nullptr;  // the calling thread's, or null

// A cpu_set_t for cores below `size`.
class CoreMask {
 public:
  explicit CoreMask(int size) : words_(CPU_ALLOC_SIZE(size) / sizeof(unsigned long)) {}
  cpu_set_t* get() { return reinterpret_cast<cpu_set_t*>(words_.data()); }
  size_t bytes() const { return words_.size() * sizeof(unsigned long); }

 private:
  std::vector<unsigned long> words_;
};

}  // namespace

std::vector<int> AllowedCores() {
  if (follower != nullptr) return follower->allowed();
  std::vector<int> cores;
  // The kernel rejects a mask shorter than its own and does not report that size, so try larger ones.
  for (int size = CPU_SETSIZE; size <= kMostCores; size *= 2) {
    CoreMask mask(size);
    if (sched_getaffinity(0, mask.bytes(), mask.get()) == 0) {
      for (int core = 0; core < size; ++core) {
        if (CPU_ISSET_S(core, mask.bytes(), mask.get())) cores.push_back(core);
      }
      break;
    }
    if (errno != EINVAL) break;
  }
  return cores;
}

int AllowedCoreCount() {
  const size_t allowed = AllowedCores().size();
  return std::max(1, static_cast<int>(allowed > 0 ? allowed : std::thread::hardware_concurrency()));
}

Status BindToCores(const std::vector<int>& cores) {
  const auto last = std::max_element(cores.begin(), cores.end());
  if (last == cores.end()) return FailedPrecondition("no cores to run on");
  if (*std::min_element(cores.begin(), cores.end()) < 0 || *last >= kMostCores)
    return FailedPrecondition("there are no cores ", CoreList(cores));
  CoreMask mask(std::max(*last + 1, CPU_SETSIZE));
  for (const int core : cores) CPU_SET_S(core, mask.bytes(), mask.get());
  if (sched_setaffinity(0, mask.bytes(), mask.get()) != 0)
    return FailedPrecondition("cannot run on cores ", CoreList(cores), ": ", strerror(errno));
  return absl::OkStatus();
}

int CurrentCore() { return sched_getcpu(); }

CoreFollower::CoreFollower() : allowed_(AllowedCores()) { follower = this; }

CoreFollower::~CoreFollower() {
  Leave();
  follower = nullptr;
}

void CoreFollower::LeaveHere() {
  if (follower != nullptr) follower->Leave();
}

void CoreFollower::Follow(int core) {
  if (core == at_ || std::exchange(seen_, core) != core) return;
  if (core < 0 || std::find(allowed_.begin(), allowed_.end(), core) == allowed_.end()) return Leave();
  if (BindToCores({core}).ok()) at_ = core;
}

void CoreFollower::Leave() {
  if (at_ >= 0 && BindToCores(allowed_).ok()) at_ = -1;
}

std::string CoreList(std::vector<int> cores) {
  std::sort(cores.begin(), cores.end());
  std::string text;
  for (size_t first = 0; first < cores.size();) {
    size_t last = first;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", cores[first]);
    if (last > first) absl::StrAppend(&text, "-", cores[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace millrace
