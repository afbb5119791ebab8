// Checkpoints of TensorFlow's first format: one table that holds the tensors as messages.
//
// New checkpoints are written in the second format (bundle.h); this is for programs and files from before it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/io/table.h"
#include "millrace/io/tensor_slice.h"
#include "millrace/proto/checkpoint.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Collects tensors, by sharing their memory, and writes them. One thread at a time.
class LegacyCheckpointWriter {
 public:
  // UNIMPLEMENTED or INVALID_ARGUMENT for types that the format does not have, INVALID_ARGUMENT for a part that is
  // there already, INTERNAL, as in TensorFlow, when parts of a tensor do not agree on its shape and type.
  Status Add(absl::string_view name, const ShapeAndSlice& part, const Tensor& tensor);
  // Writes under a temporary name, syncs and renames: after a crash there is the old file or the new.
  Status Write(FileSystem* files, const std::string& path) const;

 private:
  struct Part {
    std::string name;
    TensorSlice slice;
    Tensor tensor;
  };
  std::map<std::string, pb::SavedSliceMeta> meta_;
  std::map<std::string, Part> parts_;  // by key
};

// Reads one or several files that together are a checkpoint. Thread-safe.
class LegacyCheckpointReader {
 public:
  // NOT_FOUND when no file matches; DATA_LOSS for one that is no checkpoint.
  static StatusOr<std::unique_ptr<LegacyCheckpointReader>> Open(FileSystem* files, const std::string& pattern);

  struct Found {
    std::string name;
    DType dtype = DType::kInvalid;
    Shape full;
  };
  // NOT_FOUND names the tensor.
  StatusOr<Found> Find(absl::string_view name) const;
  // A part of it. INVALID_ARGUMENT when it is not all there, INTERNAL when stored parts overlap.
  StatusOr<Tensor> Read(const Found& found, const TensorSlice& slice) const;

 private:
  struct Stored {
    const Table* table;
    TensorSlice slice;
  };
  struct Entry {
    DType dtype = DType::kInvalid;
    Shape full;
    std::vector<Stored> parts;
  };
  Status AddFile(FileSystem* files, const std::string& path);

  std::string pattern_;
  std::vector<std::unique_ptr<Table>> tables_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace millrace
