// Compiling the programs of GPUs on machines without one. For tests only.
#pragma once

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/nvrtc.h"

namespace millrace {

// The text compiles for an H200, and no kernel keeps registers in memory.
inline void ExpectCompilesWithoutSpills(const std::string& text) {
  std::string resources;
  const StatusOr<std::string> code = CompileForGpu(text, 90, &resources);
  ASSERT_TRUE(code.ok()) << code.status();
  int kernels = 0;
  for (const absl::string_view line : absl::StrSplit(resources, '\n')) {
    if (!absl::StrContains(line, "bytes spill stores")) continue;
    ++kernels;
    EXPECT_TRUE(absl::StrContains(line, ", 0 bytes spill stores")) << resources;
  }
  EXPECT_GT(kernels, 0) << resources;
}

}  // namespace millrace
