// Input pipelines by themselves.
#pragma once

#include "bench/case.h"

namespace millrace::bench {

// Records of CIFAR-10, read, then shuffled, cropped, flipped, standardised, in batches of 128: images per second.
void CifarInput(const Flags& flags);

}  // namespace millrace::bench
