// The MNIST dataset, ready for training.
#pragma once

#include <string>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Images are float [n,784], from 0 to 1; labels are int64 [n], from 0 to 9.
struct Mnist {
  Tensor train_images;
  Tensor train_labels;
  Tensor test_images;
  Tensor test_labels;
};

// Reads the four files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, or the same with .gz. Errors name the file.
StatusOr<Mnist> LoadMnist(const std::string& directory, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
