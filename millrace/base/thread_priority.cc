#include "millrace/base/thread_priority.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace millrace {

void LowerThreadPriority() {
  // On Linux the nice value is per thread; each step changes its share by about a fifth.
  constexpr int kNice = 12;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
}

}  // namespace millrace
