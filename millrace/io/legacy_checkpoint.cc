#include "millrace/io/legacy_checkpoint.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/base/glob.h"
#include "millrace/io/bundle.h"
#include "millrace/io/legacy_values.h"

namespace millrace {

Status LegacyCheckpointWriter::Add(absl::string_view name, const ShapeAndSlice& part, const Tensor& tensor) {
  MR_RETURN_IF_ERROR(CheckLegacyType(tensor.dtype()));
  if (part.part != tensor.shape()) {
    return InvalidArgument("Slice in shape_and_slice specification does not match the shape of the tensor to save: ",
                           part.slice.ToString(), " of ", part.full.ToString(),
                           ", tensor: ", tensor.shape().ToString());
  }
  pb::SavedSliceMeta& meta = meta_[std::string(name)];
  if (meta.slice().empty()) {
    meta.set_name(std::string(name));
    part.full.ToProto(meta.mutable_shape());
    meta.set_type(static_cast<pb::DataType>(tensor.dtype()));
  }
  MR_ASSIGN_OR_RETURN(const Shape known, Shape::FromProto(meta.shape()));
  if (known != part.full) {
    return Internal("Mismatching shapes: existing tensor = ", known.ToString(), ", trying to add name ", name,
                    ", shape = ", part.full.ToString());
  }
  if (static_cast<DType>(meta.type()) != tensor.dtype()) {
    return Internal("Mismatching types: existing type = ", static_cast<DType>(meta.type()), ", trying to add name ",
                    name, ", type = ", tensor.dtype());
  }
  if (!parts_.try_emplace(SliceKey(name, part.slice), Part{std::string(name), part.slice, tensor}).second) {
    return InvalidArgument("slice ", part.slice.ToString(), " of tensor ", name, " is saved twice");
  }
  part.slice.ToProto(meta.add_slice());
  return absl::OkStatus();
}

Status LegacyCheckpointWriter::Write(FileSystem* files, const std::string& path) const {
  const std::string temporary = bundle_internal::TemporaryName(path);
  const auto write = [&]() -> Status {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files->OpenWritable(temporary));
    TableWriter table(file.get());
    pb::SavedTensorSlices saved;
    for (const auto& [name, meta] : meta_) *saved.mutable_meta()->add_tensor() = meta;
    saved.mutable_meta()->mutable_versions()->set_producer(1);
    MR_RETURN_IF_ERROR(table.Add("", saved.SerializeAsString()));
    for (const auto& [key, part] : parts_) {
      saved.Clear();
      pb::SavedSlice* const slice = saved.mutable_data();
      slice->set_name(part.name);
      part.slice.ToProto(slice->mutable_slice());
      PutLegacyValues(part.tensor, slice->mutable_data());
      constexpr size_t kMaxMessage = size_t{1} << 31;
      if (saved.ByteSizeLong() >= kMaxMessage) {
        return InvalidArgument("tensor ", part.name,
                               " is too large for the first checkpoint format: ", part.tensor.TotalBytes(), " bytes");
      }
      MR_RETURN_IF_ERROR(table.Add(key, saved.SerializeAsString()));
    }
    MR_RETURN_IF_ERROR(table.Finish());
    MR_RETURN_IF_ERROR(file->Sync());
    MR_RETURN_IF_ERROR(file->Close());
    MR_RETURN_IF_ERROR(files->Rename(temporary, path));
    return files->SyncDirectory(DirectoryOf(path));
  };
  const Status status = write();
  if (!status.ok()) files->Remove(temporary).IgnoreError();
  return status;
}

StatusOr<std::unique_ptr<LegacyCheckpointReader>> LegacyCheckpointReader::Open(FileSystem* files,
                                                                               const std::string& pattern) {
  auto reader = std::make_unique<LegacyCheckpointReader>();
  reader->pattern_ = pattern;
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Glob(files, pattern));
  if (paths.empty()) return NotFound("Failed to find any matching files for ", pattern);
  for (const std::string& path : paths) MR_RETURN_IF_ERROR(reader->AddFile(files, path));
  return reader;
}

Status LegacyCheckpointReader::AddFile(FileSystem* files, const std::string& path) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Table> table, Table::Open(files, path));
  const Status damaged = DataLoss(path, " is not a checkpoint, or is damaged: it has no list of tensors");
  const StatusOr<std::string> value = table->Find("");
  if (absl::IsNotFound(value.status())) return damaged;
  MR_RETURN_IF_ERROR(value.status());
  pb::SavedTensorSlices saved;
  if (!saved.ParseFromString(*value) || !saved.has_meta()) return damaged;
  for (const pb::SavedSliceMeta& meta : saved.meta().tensor()) {
    const StatusOr<Shape> full = Shape::FromProto(meta.shape());
    if (!full.ok()) return DataLoss("tensor ", meta.name(), " in ", path, ": ", full.status().message());
    const auto dtype = static_cast<DType>(meta.type());
    Entry& entry = entries_.try_emplace(meta.name(), Entry{dtype, *full, {}}).first->second;
    if (entry.dtype != dtype || entry.full != *full) {
      return DataLoss("tensor ", meta.name(), ": the files of ", pattern_, " do not agree on its shape and type");
    }
    for (const pb::TensorSliceProto& proto : meta.slice()) {
      const StatusOr<TensorSlice> slice = TensorSlice::FromProto(proto);
      const StatusOr<Shape> part = slice.ok() ? slice->ShapeIn(*full) : slice.status();
      if (!part.ok()) return DataLoss("tensor ", meta.name(), " in ", path, ": ", part.status().message());
      entry.parts.push_back({table.get(), *slice});
    }
  }
  tables_.push_back(std::move(table));
  return absl::OkStatus();
}

StatusOr<LegacyCheckpointReader::Found> LegacyCheckpointReader::Find(absl::string_view name) const {
  const auto at = entries_.find(name);
  if (at == entries_.end()) return NotFound("Tensor name \"", name, "\" not found in checkpoint files ", pattern_);
  return Found{std::string(name), at->second.dtype, at->second.full};
}

StatusOr<Tensor> LegacyCheckpointReader::Read(const Found& found, const TensorSlice& slice) const {
  const Entry& entry = entries_.find(found.name)->second;
  const std::string& name = found.name;
  constexpr size_t kMaxParts = 10000;  // the overlap check below is quadratic
  if (entry.parts.size() > kMaxParts)
    return Unimplemented("tensor ", name, " is stored in ", entry.parts.size(), " slices");
  MR_ASSIGN_OR_RETURN(const Shape shape, slice.ShapeIn(entry.full));
  const TensorSlice wanted = slice.Resolved(entry.full);

  // Find everything before allocating the result.
  std::vector<std::pair<Tensor, TensorSlice>> parts;
  int64_t covered = 0;
  for (const Stored& stored : entry.parts) {
    const TensorSlice part = stored.slice.Resolved(entry.full);
    TensorSlice common;
    if (!part.Intersect(wanted, &common)) continue;
    for (const auto& [tensor, other] : parts) {
      TensorSlice both;
      if (part.Intersect(other, &both)) {
        return Internal("tensor ", name, ": Overlapping slices: existing slice = ", other.ToString(),
                        ", new slice = ", part.ToString());
      }
    }
    const StatusOr<std::string> value = stored.table->Find(SliceKey(name, stored.slice));
    pb::SavedTensorSlices saved;
    if (!value.ok() && !absl::IsNotFound(value.status())) return value.status();
    if (!value.ok() || !saved.ParseFromString(*value)) {
      return DataLoss("tensor ", name, ": its slice ", stored.slice.ToString(), " in ", stored.table->path(),
                      " is missing or damaged");
    }
    StatusOr<Tensor> tensor = LegacyTensor(entry.dtype, *part.ShapeIn(entry.full), saved.data().data());
    if (!tensor.ok()) {
      return DataLoss("tensor ", name, " in ", stored.table->path(), ": ", tensor.status().message());
    }
    covered += common.ShapeIn(entry.full)->num_elements();
    parts.emplace_back(*std::move(tensor), part);
  }
  if (covered < shape.num_elements()) {
    return InvalidArgument("tensor ", name, ": slice ", slice.ToString(), " is not all in ", pattern_);
  }
  if (parts.size() == 1 && parts[0].second == wanted) return std::move(parts[0].first);
  MR_ASSIGN_OR_RETURN(Tensor result, Tensor::Make(entry.dtype, shape));
  for (const auto& [tensor, part] : parts) {
    TensorSlice common;
    part.Intersect(wanted, &common);
    CopyCommonPart(part, tensor.raw_data(), 0, tensor.num_elements(), common, wanted, &result);
  }
  return result;
}

}  // namespace millrace
