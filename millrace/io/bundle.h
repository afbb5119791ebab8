// Checkpoints as TensorFlow writes them (its second format): for a prefix P an index P.index, which is a table
// of entries by tensor name, and the tensors' bytes in P.data-00000-of-00001 and perhaps further shards.
//
// A checkpoint exists when its index does: everything else is on the disk before the index gets its name. Every
// tensor has a checksum in the index, and every block of the index has one of its own.
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

// Entries of an index by key; names and slice keys.
using BundleEntries = std::map<std::string, pb::BundleEntryProto>;

// Writes a checkpoint of one shard, tensor by tensor, straight from their memory. One thread at a time.
//
// Under a new prefix a crash or an error leaves nothing that can be taken for a checkpoint. Under a prefix that has a
// checkpoint already, that one stays whole until Finish replaces it; a crash during that leaves the old one,
// the new one or, for a moment, none: never a mixture. Temporary files of a writer that failed go with it.
class BundleWriter {
 public:
  // Makes the prefix's directory, but not the one that that is in (NOT_FOUND), as TensorFlow does.
  // `cancellation` may be null; its status ends a long write. `after_piece`, which may be empty, is called after every megabyte: a writer that
  // must not disturb rests there, and says whether there is somebody to disturb. If so, what follows goes past the system's cache.
  static StatusOr<std::unique_ptr<BundleWriter>> Create(FileSystem* files, std::string prefix,
                                                        CancellationManager* cancellation = nullptr,
                                                        std::function<bool()> after_piece = nullptr);
  ~BundleWriter();

  // INVALID_ARGUMENT for a name that is there already or empty, UNIMPLEMENTED for a tensor of handles or variants.
  Status Add(absl::string_view name, const Tensor& tensor);
  // A part of the tensor `name`; other parts may come in other calls. INVALID_ARGUMENT when they do not agree on
  // its shape and type.
  Status AddSlice(absl::string_view name, const ShapeAndSlice& part, const Tensor& tensor);
  // The same for a tensor of plain elements whose bytes come in pieces: `next` is called until it has given all of them. `part` is null for a whole one.
  Status AddPieces(absl::string_view name, const ShapeAndSlice* part, DType dtype, const Shape& shape, absl::FunctionRef<absl::string_view()> next);
  // Puts everything on the disk, then makes it the checkpoint. Nothing may follow.
  Status Finish();

 private:
  BundleWriter(FileSystem* files, std::string prefix, CancellationManager* cancellation, std::function<bool()> after_piece);
  Status WriteEntry(const std::string& key, const Tensor& tensor);
  Status WriteEntry(const std::string& key, DType dtype, const Shape& shape, absl::FunctionRef<Status(uint32_t* crc)> write);
  // Notes a slice of `name` before `write` writes it under its own key; a slice that is all of it is the tensor itself.
  Status WriteSlice(absl::string_view name, const ShapeAndSlice& part, DType dtype, absl::FunctionRef<Status(const std::string& key)> write);
  Status WriteBytes(absl::string_view bytes, uint32_t* crc);
  Status WriteStrings(const Tensor& tensor, uint32_t* crc);

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

// A tensor, or a part of one, that a checkpoint has: where its bytes are.
struct BundleTensor {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  TensorSlice wanted = {};  // every length given

  // One stored run of bytes that holds some of it.
  struct Piece {
    pb::BundleEntryProto entry;
    TensorSlice stored = {};  // every length given
    TensorSlice common = {};  // what is wanted of it
  };
  std::vector<Piece> pieces = {};
};

// Reads checkpoints of any number of shards. Opening checks the whole index. DATA_LOSS, naming the tensor and
// the file, for whatever is truncated, damaged or makes no sense. Thread-safe.
class BundleReader {
 public:
  // NOT_FOUND when there is no index.
  static StatusOr<std::unique_ptr<BundleReader>> Open(FileSystem* files, std::string prefix);

  const std::string& prefix() const { return prefix_; }
  int num_shards() const { return num_shards_; }
  // Names of tensors (without the keys of slices), their types and shapes, in order.
  Status ForEach(absl::FunctionRef<Status(absl::string_view name, const pb::BundleEntryProto& entry)> visit) const;
  // All entries, slices too.
  StatusOr<BundleEntries> Entries() const;

  // Finds a tensor. All of it is known to be in the files, so that memory can be made for it. NOT_FOUND when there is
  // none; INVALID_ARGUMENT when a tensor stored in slices lacks some.
  StatusOr<BundleTensor> Find(absl::string_view name) const;
  // Finds a part. INVALID_ARGUMENT also when the tensor has another shape than the caller thinks.
  StatusOr<BundleTensor> FindSlice(absl::string_view name, const ShapeAndSlice& part) const;

  // Reads each tensor straight into the memory of the one given for it, of the same type and shape, and checks it.
  // Reading and checking go on over the pool's threads (may be null) in pieces.
  Status Read(absl::Span<const BundleTensor> tensors, absl::Span<Tensor* const> outputs, ThreadPool* pool,
              CancellationManager* cancellation = nullptr) const;
  // The same for one.
  StatusOr<Tensor> Read(absl::string_view name) const;

 private:
  struct Shard {
    std::string path;
    std::unique_ptr<RandomAccessFile> file;
    uint64_t size = 0;
  };
  class Reading;

  BundleReader(FileSystem* files, std::string prefix) : files_(files), prefix_(std::move(prefix)) {}
  Status ReadHeader();
  StatusOr<pb::BundleEntryProto> FindEntry(absl::string_view key, absl::string_view name) const;
  // INVALID_ARGUMENT, INTERNAL or DATA_LOSS when the entry makes no sense.
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

// Makes one checkpoint of several, whose data files are renamed, not copied. INVALID_ARGUMENT, with nothing changed, when
// two have the same tensor or slice, or one is missing and `allow_missing` does not say that this is all right.
// What was under `destination` before goes first, as with BundleWriter.
struct MergeOptions {
  bool allow_missing = false;
  // Removes the directories of the parts when they are empty then.
  bool remove_directories = true;
};
Status MergeBundles(FileSystem* files, absl::Span<const std::string> prefixes, const std::string& destination,
                    const MergeOptions& options);

namespace bundle_internal {

// The prefix's directory, made when only it is missing.
Status MakeDirectoryOf(FileSystem* files, const std::string& prefix);
// A name beside `path` that nothing else has.
std::string TemporaryName(const std::string& path);
// Writes an index under a temporary name and syncs it.
Status WriteIndex(FileSystem* files, const std::string& path, int num_shards, const BundleEntries& entries);
// Gives files their names so that no crash makes a mixture: takes the old index away, renames the data, takes
// the indexes away that these belonged to before, and at last renames the new index.
struct DataMove {
  std::string from;
  std::string to;
};
Status Publish(FileSystem* files, const std::string& prefix, absl::Span<const DataMove> data,
               absl::Span<const std::string> former_indexes, const std::string& temporary_index);

}  // namespace bundle_internal
}  // namespace millrace
