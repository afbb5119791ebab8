#include "millrace/dashboard/look_out.h"

#include <malloc.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "millrace/base/file.h"
#include "millrace/base/process_usage.h"
#include "millrace/dashboard/web_page.h"

namespace millrace::dashboard {
namespace {

constexpr absl::Duration kWatchedPause = absl::Seconds(1), kUnwatchedPause = absl::Seconds(5);
constexpr absl::Duration kLongestPause = absl::Minutes(1);
// The part of a core that looking may take.
constexpr double kShareOfCore = 0.01;
// How long a task's output is fetched after somebody asked for it, and for how many tasks at once.
constexpr absl::Duration kOutputWanted = absl::Seconds(10);
constexpr size_t kMaxOutputs = 16;

double CpuSeconds() {
  const ProcessUsage usage = UsageOfThisProcess();
  return usage.user_seconds + usage.system_seconds;
}

void Ring(const Fd& bell) { eventfd_write(bell.get(), 1); }
void Silence(const Fd& bell) {
  eventfd_t count;
  eventfd_read(bell.get(), &count);
}

}  // namespace

LookOut::LookOut(WatcherOptions options, std::string save)
    : options_(options),
      save_(std::move(save)),
      watcher_(std::move(options)),
      changed_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      hurry_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      document_(std::make_shared<const nlohmann::json>(nlohmann::json::object())) {}

LookOut::~LookOut() { End().IgnoreError(); }

Status LookOut::Begin() {
  MR_RETURN_IF_ERROR(watcher_.Begin());
  thread_ = std::make_unique<ThreadGroup>("look_out");
  if (!thread_->Start([this] { Run(); })) return ResourceExhausted("the system cannot start a thread");
  return absl::OkStatus();
}

Status LookOut::End() {
  if (thread_ == nullptr) return absl::OkStatus();
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  Ring(hurry_);
  thread_.reset();
  return Save();
}

void LookOut::Run() {
  while (true) {
    const double before = CpuSeconds();
    const Observation look = watcher_.Look(state_.last_event());
    state_.Add(look);
    FetchOutputs();
    auto document = std::make_shared<const nlohmann::json>(state_.document());
    bool first_end;
    {
      MutexLock lock(&mu_);
      document_ = std::move(document);
      first_end = look.ended && !ended_;
      ended_ = look.ended;
      if (first_end && look.job.has_value()) {
        for (const auto& [task, text] : look.job->outputs) outputs_[task].text = text;
      }
    }
    Ring(changed_);
    // A look makes and drops several copies of all tasks, which the allocator would keep.
    malloc_trim(0);
    if (first_end) {
      if (const Status saved = Save(); !saved.ok()) std::cerr << "millrace dashboard: " << saved.message() << std::endl;
    }
    if (look.ended && IsStopped()) return;
    watcher_.Rest(Pause(CpuSeconds() - before), hurry_.get());
    Silence(hurry_);
    if (!IsStopped()) continue;
    // The end of the job may be there already, and belongs on the page.
    watcher_.Rest(absl::ZeroDuration(), -1);
    if (!watcher_.ended()) return;
  }
}

bool LookOut::IsStopped() const {
  MutexLock lock(&mu_);
  return stop_;
}

absl::Duration LookOut::Pause(double cpu_seconds) const {
  MutexLock lock(&mu_);
  // What has ended does not change.
  if (ended_) return absl::Hours(1);
  const absl::Duration least = watched_ ? kWatchedPause : kUnwatchedPause;
  return std::clamp(absl::Seconds(cpu_seconds / kShareOfCore), least, kLongestPause);
}

void LookOut::FetchOutputs() {
  std::vector<std::string> wanted;
  {
    MutexLock lock(&mu_);
    if (ended_) return;
    std::erase_if(outputs_, [&](const auto& entry) { return entry.second.until < options_.clock->Now(); });
    for (const auto& [task, output] : outputs_) wanted.push_back(task);
  }
  for (const std::string& task : wanted) {
    std::string text = watcher_.Output(task);
    MutexLock lock(&mu_);
    outputs_[task].text = std::move(text);
  }
}

std::string LookOut::Output(const std::string& task) {
  MutexLock lock(&mu_);
  const auto found = outputs_.find(task);
  if (found == outputs_.end()) {
    const auto tasks = document_->find("tasks");
    if (ended_ || outputs_.size() >= kMaxOutputs || tasks == document_->end() || !tasks->contains(task)) return "";
    Ring(hurry_);
  }
  outputs_[task].until = options_.clock->Now() + kOutputWanted;
  return outputs_[task].text;
}

std::shared_ptr<const nlohmann::json> LookOut::document() const {
  MutexLock lock(&mu_);
  return document_;
}

void LookOut::ClearWake() { Silence(changed_); }

void LookOut::set_watched(bool watched) {
  MutexLock lock(&mu_);
  watched_ = watched;
}

void LookOut::Hurry() {
  set_watched(true);
  Ring(hurry_);
}

Status LookOut::Save() const {
  if (save_.empty()) return absl::OkStatus();
  std::shared_ptr<const nlohmann::json> document;
  std::map<std::string, std::string> outputs;
  {
    MutexLock lock(&mu_);
    document = document_;
    for (const auto& [task, output] : outputs_) outputs[task] = output.text;
  }
  return WithPrefix("cannot save the page: ", ReplaceFile(FileSystem::Posix(), save_, SavedPage(*document, outputs)));
}

}  // namespace millrace::dashboard
