// The CIFAR-10 dataset.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct CifarImages {
  Tensor images;  // uint8 [n,32,32,3], the colours of a pixel side by side
  Tensor labels;  // int32 [n], from 0 to 9
};

struct Cifar10 {
  CifarImages train;
  CifarImages test;
  std::vector<std::string> class_names;  // ten: "airplane", "automobile", ...
  // Files of the distribution that are not there and not needed: batches.meta.txt, readme.html.
  std::vector<std::string> absent;
};

// Reads the directory cifar-10-batches-bin, or the one that it is in. Needed are data_batch_1.bin to data_batch_5.bin
// and test_batch.bin. Errors name the file: NOT_FOUND all that are missing, DATA_LOSS one that is incomplete.
StatusOr<Cifar10> LoadCifar10(const std::string& directory, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
