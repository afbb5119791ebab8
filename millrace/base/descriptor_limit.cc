#include "millrace/base/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

// Where the hard limit is infinite, so that the soft one stays below what the kernel grants (fs.nr_open).
constexpr rlim_t kMostDescriptors = rlim_t{1} << 20;

}  // namespace

int64_t DescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur == RLIM_INFINITY) return std::numeric_limits<int32_t>::max();
  return static_cast<int64_t>(limit.rlim_cur);
}

int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    const rlim_t wanted = limit.rlim_max == RLIM_INFINITY ? kMostDescriptors : limit.rlim_max;
    limit.rlim_cur = std::max(limit.rlim_cur, wanted);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return DescriptorLimit();
}

}  // namespace millrace
