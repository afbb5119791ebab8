// The thread that looks at the job, and what it has seen for the thread that serves the page.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"
#include "millrace/dashboard/page_state.h"
#include "millrace/dashboard/watcher.h"

namespace millrace::dashboard {

// Looks once a second while somebody watches, less often otherwise, and never so often that it takes more than about a
// hundredth of a core. Thread-safe; no call waits for the job.
class LookOut {
 public:
  // `save` is the file to which the page is written at the end of the job, and by End; empty: none.
  LookOut(WatcherOptions options, std::string save);
  ~LookOut();

  // NOT_FOUND if there is no such job. Starts the thread.
  Status Begin();
  // Stops the thread, and saves the page.
  Status End();

  // What the page shows; never null.
  std::shared_ptr<const nlohmann::json> document() const;
  // The end of a task's output, as far as it has been fetched: it is from now on, for as long as somebody asks.
  std::string Output(const std::string& task);

  // Readable after a change.
  int wake_fd() const { return changed_.get(); }
  void ClearWake();
  void set_watched(bool watched);
  // Looks now.
  void Hurry();

 private:
  struct Wanted {
    std::string text = {};
    absl::Time until = absl::InfinitePast();  // nobody asks for it after that
  };
  void Run();
  bool IsStopped() const;
  void FetchOutputs();
  Status Save() const;
  absl::Duration Pause(double cpu_seconds) const;

  const WatcherOptions options_;
  const std::string save_;
  Watcher watcher_;  // used by the thread only, once that has started
  PageState state_;  // likewise
  Fd changed_, hurry_;
  mutable Mutex mu_;
  std::shared_ptr<const nlohmann::json> document_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Wanted> outputs_ ABSL_GUARDED_BY(mu_);
  bool watched_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<ThreadGroup> thread_;
};

}  // namespace millrace::dashboard
