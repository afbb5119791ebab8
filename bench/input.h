// Input pipelines by themselves.
#pragma once

#include "bench/case.h"

namespace millrace::bench {

// Images of CIFAR's size, shuffled, cropped, flipped, standardised, in batches of 128: images per second.
void CifarInput(const Flags& flags);

}  // namespace millrace::bench
