// Checkpoints in TensorFlow's first format (V1): a table that stores the tensors as TensorProto messages.
//
// New checkpoints use the second format (bundle.h); this is for older programs and files.
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

// Collects tensors, sharing their memory, and writes them. Not thread-safe.
class LegacyCheckpointWriter {
 public:
  // UNIMPLEMENTED or INVALID_ARGUMENT for types that the format does not support, INVALID_ARGUMENT for a duplicate
  // slice, INTERNAL, as in TensorFlow, if slices of a tensor do not agree on its shape and type.
  Status Add(absl::string_view name, const ShapeAndSlice& part, const Tensor& tensor);
  // Replaces the file atomically (temporary file, sync, rename): after a crash there is either the old or the new file.
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

// Reads a checkpoint of one or several files. Thread-safe.
class LegacyCheckpointReader {
 public:
  // NOT_FOUND if no file matches `pattern`; DATA_LOSS if one of them is not a checkpoint.
  static StatusOr<std::unique_ptr<LegacyCheckpointReader>> Open(FileSystem* files, const std::string& pattern);

  struct Found {
    std::string name;
    DType dtype = DType::kInvalid;
    Shape full;
  };
  // NOT_FOUND, naming the tensor, if it is missing.
  StatusOr<Found> Find(absl::string_view name) const;
  // Reads a slice. INVALID_ARGUMENT if parts of it are missing, INTERNAL if stored slices overlap.
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
