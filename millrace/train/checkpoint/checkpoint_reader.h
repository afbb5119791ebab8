// Reads a checkpoint without a graph.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct CheckpointVariable {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  int slices = 0;  // the number of slices of a partitioned variable; 0: saved whole
};

// `checkpoint` is a prefix ("train/model.ckpt-812"), or a directory for its newest checkpoint.

// The checkpoint's prefix. NOT_FOUND if it does not exist or the directory has none.
StatusOr<std::string> FindCheckpoint(const std::string& checkpoint, FileSystem* files = FileSystem::Posix());
// Sorted by name.
StatusOr<std::vector<CheckpointVariable>> ListVariables(const std::string& checkpoint,
                                                        FileSystem* files = FileSystem::Posix());
// The whole variable, joined from its slices if it was saved in slices. NOT_FOUND names what is missing.
StatusOr<Tensor> LoadVariable(const std::string& checkpoint, const std::string& name,
                              FileSystem* files = FileSystem::Posix());

}  // namespace millrace
