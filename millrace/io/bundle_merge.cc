#include <utility>

#include "absl/container/flat_hash_set.h"
#include "millrace/io/bundle.h"

namespace millrace {
namespace {

// Adds the entries of one checkpoint, renumbering its shards from `first_shard`.
Status AddEntries(const BundleReader& part, int first_shard, BundleEntries* merged) {
  MR_ASSIGN_OR_RETURN(BundleEntries entries, part.Entries());
  for (auto& [key, entry] : entries) {
    if (entry.slices().empty()) entry.set_shard_id(first_shard + entry.shard_id());
    const auto [at, is_new] = merged->try_emplace(key, entry);
    if (is_new) continue;
    pb::BundleEntryProto& known = at->second;
    if (entry.slices().empty() || known.slices().empty()) {
      return InvalidArgument("Duplicate tensor keyed by ", key, " encountered, when merging prefix: ", part.prefix());
    }
    if (known.dtype() != entry.dtype() || known.shape().SerializeAsString() != entry.shape().SerializeAsString()) {
      return InvalidArgument("slices of tensor ", key,
                             " do not agree on its type and shape, when merging prefix: ", part.prefix());
    }
    known.mutable_slices()->MergeFrom(entry.slices());
  }
  return absl::OkStatus();
}

}  // namespace

Status MergeBundles(FileSystem* files, absl::Span<const std::string> prefixes, const std::string& destination,
                    const MergeOptions& options) {
  std::vector<std::unique_ptr<BundleReader>> parts;
  int num_shards = 0;
  for (const std::string& prefix : prefixes) {
    StatusOr<std::unique_ptr<BundleReader>> part = BundleReader::Open(files, prefix);
    if (absl::IsNotFound(part.status())) {
      if (options.allow_missing) continue;
      return InvalidArgument("allow_missing_files was set to false and ", prefix,
                             " did not exist: ", part.status().message());
    }
    MR_RETURN_IF_ERROR(part.status());
    num_shards += (*part)->num_shards();
    parts.push_back(*std::move(part));
  }
  if (parts.empty()) {
    return InvalidArgument("At least one prefix checkpoint file must exist, but none existed.");
  }

  // Validate everything before changing anything.
  BundleEntries merged;
  std::vector<bundle_internal::DataMove> moves;
  for (const std::unique_ptr<BundleReader>& part : parts) {
    MR_RETURN_IF_ERROR(AddEntries(*part, static_cast<int>(moves.size()), &merged));
    for (int i = 0; i < part->num_shards(); ++i) {
      std::string from = BundleDataPath(part->prefix(), i, part->num_shards());
      MR_RETURN_IF_ERROR(files->Exists(from));
      moves.push_back({std::move(from), BundleDataPath(destination, static_cast<int>(moves.size()), num_shards)});
    }
  }
  std::vector<std::string> former_indexes;
  absl::flat_hash_set<std::string> directories;
  for (const std::unique_ptr<BundleReader>& part : parts) {
    former_indexes.push_back(BundleIndexPath(part->prefix()));
    directories.insert(DirectoryOf(part->prefix()));
  }
  directories.erase(DirectoryOf(destination));

  MR_RETURN_IF_ERROR(bundle_internal::MakeDirectoryOf(files, destination));
  const std::string index = bundle_internal::TemporaryName(BundleIndexPath(destination));
  Status status = bundle_internal::WriteIndex(files, index, num_shards, merged);
  if (status.ok()) status = bundle_internal::Publish(files, destination, moves, former_indexes, index);
  if (!status.ok()) {
    files->Remove(index).IgnoreError();
    return status;
  }
  if (options.remove_directories) {
    for (const std::string& directory : directories) files->Remove(directory).IgnoreError();  // fails unless empty
  }
  return absl::OkStatus();
}

}  // namespace millrace
