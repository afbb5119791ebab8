// Training steps of convolutional networks.
#pragma once

#include "bench/case.h"

namespace millrace::bench {

// ResNet-20 on images of CIFAR's size, batch 128, Momentum: images per second.
void ResNet20(const Flags& flags);

// Two convolutions with pools and two dense layers on images of MNIST's size, batch 64, SGD: steps per second.
void ConvMnist(const Flags& flags);

}  // namespace millrace::bench
