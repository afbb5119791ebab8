// What is in a checkpoint, without a graph.
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
  int slices = 0;  // how many parts it is saved in; 0: whole
};

// In each of these the checkpoint is a prefix ("train/model.ckpt-812") or a directory, whose newest it is.

// The prefix. NOT_FOUND when there is no such checkpoint, or none in the directory.
StatusOr<std::string> FindCheckpoint(const std::string& checkpoint, FileSystem* files = FileSystem::Posix());
// By name.
StatusOr<std::vector<CheckpointVariable>> ListVariables(const std::string& checkpoint, FileSystem* files = FileSystem::Posix());
// All of it, joined where it is saved in slices. NOT_FOUND names what there is not.
StatusOr<Tensor> LoadVariable(const std::string& checkpoint, const std::string& name, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
