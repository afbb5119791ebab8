#include "millrace/base/thread_priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace millrace {

void LowerThreadPriority() {
  // On Linux a thread has a nice value of its own; each step of it is worth about a fifth.
  constexpr int kNice = 12;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

}  // namespace millrace
