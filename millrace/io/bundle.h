// Checkpoints in TensorFlow's second format (tensor bundles): for a prefix P, the index P.index is a table of entries
// by tensor name, and one or more shards P.data-00000-of-00001 hold the tensors' bytes.
//
// A checkpoint exists if its index does: all other files are durable before the index gets its name. The index has a
// checksum for every tensor and for each of its own blocks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/base/thread_pool.h"
#include "millrace/io/table.h"
#include "millrace/io/tensor_slice.h"
#include "millrace/proto/checkpoint.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

std::string BundleIndexPath(absl::string_view prefix);
std::string BundleDataPath(absl::string_view prefix, int shard, int num_shards);

// The entries of an index by key (tensor names and slice keys).
using BundleEntries = std::map<std::string, pb::BundleEntryProto>;

// Writes a checkpoint of one shard, tensor by tensor, without copying them. Not thread-safe.
//
// Under a new prefix, a crash or an error leaves nothing that could be taken for a checkpoint. An existing checkpoint
// under the prefix stays intact until Finish replaces it; a crash during Finish leaves the old one, the new one or
// none, never a mixture. The destructor removes the temporary files of a failed writer.
class BundleWriter {
 public:
  // Creates the prefix's directory but not its parent (NOT_FOUND), as TensorFlow does. `cancellation` may be null;
  // cancelling it ends a long write with its status. `after_piece` may be empty; it is called after every megabyte so
  // that a background writer can throttle itself, and returns whether other work is being disturbed. If so, the writes
  // that follow bypass the page cache.
  static StatusOr<std::unique_ptr<BundleWriter>> Create(FileSystem* files, std::string prefix,
                                                        CancellationManager* cancellation = nullptr,
                                                        std::function<bool()> after_piece = nullptr);
  ~BundleWriter();

  // INVALID_ARGUMENT for an empty or duplicate name, UNIMPLEMENTED for a tensor of handles or variants.
  Status Add(absl::string_view name, const Tensor& tensor);
  // Adds a slice of the tensor `name`; other calls may add further slices. INVALID_ARGUMENT if they do not agree on its
  // shape and type.
  Status AddSlice(absl::string_view name, const ShapeAndSlice& part, const Tensor& tensor);
  // Adds a tensor of a plain type, or the slice `part` of one if not null, whose bytes come in pieces: `next` is called
  // until it has returned all of them.
  Status AddPieces(absl::string_view name, const ShapeAndSlice* part, DType dtype, const Shape& shape,
                   absl::FunctionRef<absl::string_view()> next);
  // Makes everything durable, then publishes it as the checkpoint. No other call may follow.
  Status Finish();

 private:
  BundleWriter(FileSystem* files, std::string prefix, CancellationManager* cancellation,
               std::function<bool()> after_piece);
  Status WriteEntry(const std::string& key, const Tensor& tensor);
  Status WriteEntry(const std::string& key, DType dtype, const Shape& shape,
                    absl::FunctionRef<Status(uint32_t* crc)> write);
  // Records a slice of `name`, then calls `write` to write it under its own key; a slice that covers the whole tensor
  // is written as the tensor itself.
  Status WriteSlice(absl::string_view name, const ShapeAndSlice& part, DType dtype,
                    absl::FunctionRef<Status(const std::string& key)> write);
  Status WriteBytes(absl::string_view bytes, uint32_t* crc);
  Status WriteStrings(const Tensor& tensor, uint32_t* crc);
  Status WriteVariants(const Tensor& tensor, uint32_t* crc);

  FileSystem* const files_;
  const std::string prefix_;
  CancellationManager* const cancellation_;
  const std::function<bool()> after_piece_;
  std::string temporary_data_;
  std::unique_ptr<WritableFile> data_;
  BundleEntries entries_;
  uint64_t offset_ = 0;
  uint64_t since_sync_ = 0;
  Status status_;
};

// The location of a tensor's or a slice's bytes in a checkpoint.
struct BundleTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  TensorSlice wanted = {};  // every length given

  // A contiguous range of stored bytes that holds some of it.
  struct Piece {
    pb::BundleEntryProto entry;
    TensorSlice stored = {};  // every length given
    TensorSlice common = {};  // the requested part of it
  };
  std::vector<Piece> pieces = {};
};

// Reads checkpoints of any number of shards. Thread-safe. Open verifies the whole index. DATA_LOSS, naming the tensor
// and the file, for anything truncated, corrupted or inconsistent.
class BundleReader {
 public:
  // NOT_FOUND when there is no index.
  static StatusOr<std::unique_ptr<BundleReader>> Open(FileSystem* files, std::string prefix);

  const std::string& prefix() const { return prefix_; }
  int num_shards() const { return num_shards_; }
  // Visits the tensors in order of their names; slices are not visited separately.
  Status ForEach(absl::FunctionRef<Status(absl::string_view name, const pb::BundleEntryProto& entry)> visit) const;
  // All entries, including those of slices.
  StatusOr<BundleEntries> Entries() const;

  // Finds a tensor and checks that the files contain all of it, so that the caller can safely allocate memory for it.
  // NOT_FOUND if there is no such tensor; INVALID_ARGUMENT if some of its slices are missing.
  StatusOr<BundleTensor> Find(absl::string_view name) const;
  // Finds a slice. INVALID_ARGUMENT also if the tensor's shape differs from `part.full`.
  StatusOr<BundleTensor> FindSlice(absl::string_view name, const ShapeAndSlice& part) const;

  // Reads each tensor into the memory of the corresponding output, which has the same type and shape, and verifies its
  // checksum. The work is split into pieces that run on the pool's threads; `pool` may be null.
  Status Read(absl::Span<const BundleTensor> tensors, absl::Span<Tensor* const> outputs, ThreadPool* pool,
              CancellationManager* cancellation = nullptr) const;
  // Finds and reads one tensor into new memory.
  StatusOr<Tensor> Read(absl::string_view name) const;

 private:
  friend class BundleReading;  // reads from the shards on several threads
  struct Shard {
    std::string path;
    std::unique_ptr<RandomAccessFile> file;
    uint64_t size = 0;
  };

  BundleReader(FileSystem* files, std::string prefix) : files_(files), prefix_(std::move(prefix)) {}
  Status ReadHeader();
  StatusOr<pb::BundleEntryProto> FindEntry(absl::string_view key, absl::string_view name) const;
  // INVALID_ARGUMENT, INTERNAL or DATA_LOSS if the entry is inconsistent.
  StatusOr<BundleTensor> Locate(absl::string_view name, const pb::BundleEntryProto& entry, const Shape& full,
                                TensorSlice wanted) const;
  Status CheckPiece(absl::string_view name, DType dtype, const BundleTensor::Piece& piece) const;
  std::string DataPath(const pb::BundleEntryProto& entry) const;
  StatusOr<const Shard*> OpenShard(int shard) const;

  FileSystem* const files_;
  const std::string prefix_;
  std::unique_ptr<Table> table_;
  int num_shards_ = 0;
  mutable Mutex mu_;
  mutable std::map<int, std::unique_ptr<Shard>> shards_ ABSL_GUARDED_BY(mu_);
};

// Merges several checkpoints into one by renaming their data files. INVALID_ARGUMENT, with nothing changed, if two of
// them have the same tensor or slice, or if one is missing and `allow_missing` is false. An existing checkpoint at
// `destination` is replaced as by BundleWriter.
struct MergeOptions {
  bool allow_missing = false;
  // Removes the directories of the merged checkpoints if they are empty afterwards.
  bool remove_directories = true;
};
Status MergeBundles(FileSystem* files, absl::Span<const std::string> prefixes, const std::string& destination,
                    const MergeOptions& options);

namespace bundle_internal {

// Whether a checkpoint can hold tensors of the type.
bool CanStore(DType dtype);
// Creates the prefix's directory; its parent must exist.
Status MakeDirectoryOf(FileSystem* files, const std::string& prefix);
// A unique name in the directory of `path`.
std::string TemporaryName(const std::string& path);
// Writes an index under a temporary name and syncs it.
Status WriteIndex(FileSystem* files, const std::string& path, int num_shards, const BundleEntries& entries);
// Renames files in an order such that no crash leaves a mixture: removes the old index, renames the data, removes the
// indexes that the data belonged to before, and finally renames the new index.
struct DataMove {
  std::string from;
  std::string to;
};
Status Publish(FileSystem* files, const std::string& prefix, absl::Span<const DataMove> data,
               absl::Span<const std::string> former_indexes, const std::string& temporary_index);

}  // namespace bundle_internal
}  // namespace millrace
