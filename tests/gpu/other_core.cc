// Stands for a libmillrace_cuda.so that was built with another libmillrace.so: the loader must refuse it before its
// initialisers run.
#include <cstdlib>

extern "C" {
extern const char millrace_version_0_0_0[];
const char* millrace_cuda_needs = millrace_version_0_0_0;
}

namespace {
const int kRan = [] {
  std::abort();
  return 0;
}();
}  // namespace
