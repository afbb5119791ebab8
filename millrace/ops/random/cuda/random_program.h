// The text of a GPU's kernels that fill a tensor with random numbers: the CPU's distributions and its Philox.
#pragma once

#include <string>

#include "millrace/base/philox.h"
#include "millrace/ops/random/random_kernel.h"

namespace millrace::random {

struct RandomProgram {
  Distribution distribution = Distribution::kUniform;
  DType dtype = DType::kFloat;

  // The name of the kernel in the text. Its arguments: the number of elements, the State, of kUniformInt the least
  // number and how many there are (uint64_t), the address of the result.
  static constexpr char kKernel[] = "millrace_random";
  // As the text has it.
  struct State {
    uint32_t counter[4];
    uint32_t key[2];
    static State Of(const Philox& stream);
  };

  // C++ for NVRTC, complete but for options.
  std::string Text() const;
  // What such texts begin with, and the kernel.
  static std::string Headers();
  std::string Kernel(const std::string& name) const;
};

// Groups of numbers of one thread each.
int64_t GroupsOf(int64_t elements, DType dtype);

}  // namespace millrace::random
