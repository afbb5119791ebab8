#include "millrace/train/checkpoint/checkpoint_reader.h"

#include "millrace/io/bundle.h"
#include "millrace/train/checkpoint/saver.h"

namespace millrace {

StatusOr<std::string> FindCheckpoint(const std::string& checkpoint, FileSystem* files) {
  if (files->Exists(BundleIndexPath(checkpoint)).ok()) return checkpoint;
  if (!files->IsDirectory(checkpoint).value_or(false)) {
    return NotFound("there is no checkpoint ", checkpoint, ": neither ", BundleIndexPath(checkpoint),
                    " nor a directory of that name exists");
  }
  MR_ASSIGN_OR_RETURN(std::string latest, LatestCheckpoint(checkpoint, "checkpoint", files));
  if (latest.empty())
    return NotFound("the directory ", checkpoint, " has no checkpoint that its file `checkpoint` names");
  return latest;
}

StatusOr<std::vector<CheckpointVariable>> ListVariables(const std::string& checkpoint, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(const std::string prefix, FindCheckpoint(checkpoint, files));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(files, prefix));
  std::vector<CheckpointVariable> all;
  MR_RETURN_IF_ERROR(reader->ForEach([&](absl::string_view name, const pb::BundleEntryProto& entry) -> Status {
    const StatusOr<Shape> shape = Shape::FromProto(entry.shape());
    if (!shape.ok()) return DataLoss("tensor ", name, " of checkpoint ", prefix, ": ", shape.status().message());
    all.push_back({std::string(name), static_cast<DType>(entry.dtype()), *shape, entry.slices_size()});
    return absl::OkStatus();
  }));
  return all;
}

StatusOr<Tensor> LoadVariable(const std::string& checkpoint, const std::string& name, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(const std::string prefix, FindCheckpoint(checkpoint, files));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(files, prefix));
  return reader->Read(name);
}

}  // namespace millrace
