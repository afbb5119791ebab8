// Names of a checkpoint's files, writing its index, and publishing files in a crash-safe order.
#include <unistd.h>

#include <atomic>

#include "absl/strings/str_format.h"
#include "millrace/io/bundle.h"

namespace millrace {

std::string BundleIndexPath(absl::string_view prefix) { return absl::StrCat(prefix, ".index"); }

std::string BundleDataPath(absl::string_view prefix, int shard, int num_shards) {
  return absl::StrFormat("%s.data-%05d-of-%05d", prefix, shard, num_shards);
}

namespace bundle_internal {

bool CanStore(DType dtype) {
  return IsKnown(dtype) && (IsPlain(dtype) || dtype == DType::kString || dtype == DType::kVariant);
}

Status MakeDirectoryOf(FileSystem* files, const std::string& prefix) {
  const std::string directory = DirectoryOf(prefix);
  if (files->Exists(directory).ok()) return absl::OkStatus();
  MR_RETURN_IF_ERROR(files->Exists(DirectoryOf(directory)));
  return files->MakeDirectories(directory);
}

std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return absl::StrCat(path, ".tempstate", getpid(), "-", counter.fetch_add(1));
}

Status WriteIndex(FileSystem* files, const std::string& path, int num_shards, const BundleEntries& entries) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files->OpenWritable(path));
  TableWriter table(file.get());
  pb::BundleHeaderProto header;
  header.set_num_shards(num_shards);
  header.mutable_version()->set_producer(1);
  MR_RETURN_IF_ERROR(table.Add("", header.SerializeAsString()));
  for (const auto& [key, entry] : entries) {
    MR_RETURN_IF_ERROR(table.Add(key, entry.SerializeAsString()));
  }
  MR_RETURN_IF_ERROR(table.Finish());
  MR_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

Status Publish(FileSystem* files, const std::string& prefix, absl::Span<const DataMove> data,
               absl::Span<const std::string> former_indexes, const std::string& temporary_index) {
  const std::string directory = DirectoryOf(prefix);
  const std::string index = BundleIndexPath(prefix);
  // The old index must be durably removed before any of its data files is replaced; otherwise a crash in between would
  // leave it with another checkpoint's data.
  if (const Status status = files->Remove(index); status.ok()) {
    MR_RETURN_IF_ERROR(files->SyncDirectory(directory));
  } else if (!absl::IsNotFound(status)) {
    return status;
  }
  for (const DataMove& move : data) {
    if (move.from != move.to) MR_RETURN_IF_ERROR(files->Rename(move.from, move.to));
  }
  for (const std::string& former : former_indexes) {
    const Status status = files->Remove(former);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
  }
  // The new data files must durably have their names before the new index does.
  MR_RETURN_IF_ERROR(files->SyncDirectory(directory));
  MR_RETURN_IF_ERROR(files->Rename(temporary_index, index));
  return files->SyncDirectory(directory);
}

}  // namespace bundle_internal
}  // namespace millrace
