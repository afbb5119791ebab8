#include <utility>

#include "millrace/io/bundle.h"
#include "millrace/io/bundle_reading.h"

namespace millrace {

StatusOr<std::unique_ptr<BundleReader>> BundleReader::Open(FileSystem* files, std::string prefix) {
  std::unique_ptr<BundleReader> reader(new BundleReader(files, std::move(prefix)));
  MR_ASSIGN_OR_RETURN(reader->table_, Table::Open(files, BundleIndexPath(reader->prefix_)));
  MR_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

Status BundleReader::ReadHeader() {
  // A checkpoint whose index is damaged anywhere is rejected as a whole.
  MR_RETURN_IF_ERROR(table_->ForEach([](absl::string_view, absl::string_view) { return absl::OkStatus(); }));
  const StatusOr<std::string> value = table_->Find("");
  if (!value.ok()) return DataLoss(table_->path(), " is not a checkpoint index: it has no header");
  pb::BundleHeaderProto header;
  if (!header.ParseFromString(*value)) return DataLoss(table_->path(), " is damaged: its header cannot be parsed");
  if (header.num_shards() < 1) return DataLoss(table_->path(), " is damaged: it has ", header.num_shards(), " shards");
  if (header.endianness() != pb::BundleHeaderProto::LITTLE) {
    return Unimplemented(table_->path(), " was written on a machine of the other byte order");
  }
  constexpr int kVersion = 1;
  if (header.version().min_consumer() > kVersion) {
    return InvalidArgument(table_->path(), " needs a reader of version ", header.version().min_consumer(),
                           ", and this one has version ", kVersion);
  }
  num_shards_ = header.num_shards();
  return absl::OkStatus();
}

namespace {

StatusOr<pb::BundleEntryProto> ParseEntry(absl::string_view value, absl::string_view name, const std::string& path) {
  pb::BundleEntryProto entry;
  if (!entry.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    return DataLoss("tensor ", name, ": its entry in ", path, " cannot be parsed");
  }
  return entry;
}

}  // namespace

Status BundleReader::ForEach(
    absl::FunctionRef<Status(absl::string_view name, const pb::BundleEntryProto& entry)> visit) const {
  return table_->ForEach([&](absl::string_view key, absl::string_view value) -> Status {
    if (key.empty() || key.front() == '\0') return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const pb::BundleEntryProto entry, ParseEntry(value, key, table_->path()));
    return visit(key, entry);
  });
}

StatusOr<BundleEntries> BundleReader::Entries() const {
  BundleEntries entries;
  MR_RETURN_IF_ERROR(table_->ForEach([&](absl::string_view key, absl::string_view value) -> Status {
    if (key.empty()) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(pb::BundleEntryProto entry, ParseEntry(value, key, table_->path()));
    entries.emplace_hint(entries.end(), std::string(key), std::move(entry));
    return absl::OkStatus();
  }));
  return entries;
}

StatusOr<pb::BundleEntryProto> BundleReader::FindEntry(absl::string_view key, absl::string_view name) const {
  MR_ASSIGN_OR_RETURN(const std::string value, table_->Find(key));
  return ParseEntry(value, name, table_->path());
}

StatusOr<BundleTensor> BundleReader::Find(absl::string_view name) const {
  const StatusOr<pb::BundleEntryProto> entry = name.empty() ? NotFound("no name is empty") : FindEntry(name, name);
  if (absl::IsNotFound(entry.status())) return NotFound("Key ", name, " not found in checkpoint ", prefix_);
  MR_RETURN_IF_ERROR(entry.status());
  const StatusOr<Shape> full = Shape::FromProto(entry->shape());
  if (!full.ok()) return DataLoss("tensor ", name, " in ", table_->path(), ": ", full.status().message());
  return Locate(name, *entry, *full, TensorSlice::Whole(full->rank()));
}

StatusOr<BundleTensor> BundleReader::FindSlice(absl::string_view name, const ShapeAndSlice& part) const {
  const StatusOr<pb::BundleEntryProto> entry = name.empty() ? NotFound("no name is empty") : FindEntry(name, name);
  if (absl::IsNotFound(entry.status())) return NotFound("Key ", name, " not found in checkpoint ", prefix_);
  MR_RETURN_IF_ERROR(entry.status());
  const StatusOr<Shape> full = Shape::FromProto(entry->shape());
  if (!full.ok()) return DataLoss("tensor ", name, " in ", table_->path(), ": ", full.status().message());
  if (*full != part.full) {
    return InvalidArgument("tensor_name = ", name, "; shape in shape_and_slice spec ", part.full.ToString(),
                           " does not match the shape stored in checkpoint: ", full->ToString());
  }
  return Locate(name, *entry, *full, part.slice);
}

StatusOr<BundleTensor> BundleReader::Locate(absl::string_view name, const pb::BundleEntryProto& entry,
                                            const Shape& full, TensorSlice wanted) const {
  BundleTensor tensor;
  tensor.name = std::string(name);
  tensor.dtype = static_cast<DType>(entry.dtype());
  if (!bundle_internal::CanStore(tensor.dtype)) {
    return Unimplemented("tensor ", name, " in ", table_->path(), " has type ", tensor.dtype,
                         ", which cannot be restored");
  }
  MR_ASSIGN_OR_RETURN(tensor.shape, wanted.ShapeIn(full));
  tensor.wanted = wanted.Resolved(full);
  if (tensor.dtype == DType::kVariant && (!entry.slices().empty() || tensor.shape != full)) {
    return Unimplemented("tensor ", name, " in ", table_->path(),
                         " is of variants, which are restored as a whole only");
  }
  if (entry.slices().empty()) {
    tensor.pieces.push_back({entry, TensorSlice::Whole(full.rank()).Resolved(full), tensor.wanted});
    MR_RETURN_IF_ERROR(CheckPiece(name, tensor.dtype, tensor.pieces[0]));
    return tensor;
  }

  // The overlap check below is quadratic.
  constexpr int kMaxSlices = 10000;
  if (entry.slices_size() > kMaxSlices) {
    return Unimplemented("tensor ", name, " in ", table_->path(), " is stored in ", entry.slices_size(),
                         " slices; at most ", kMaxSlices, " can be restored");
  }
  int64_t covered = 0;
  for (const pb::TensorSliceProto& proto : entry.slices()) {
    const StatusOr<TensorSlice> slice = TensorSlice::FromProto(proto);
    const StatusOr<Shape> shape = slice.ok() ? slice->ShapeIn(full) : slice.status();
    if (!shape.ok()) return DataLoss("tensor ", name, " in ", table_->path(), ": ", shape.status().message());
    BundleTensor::Piece piece;
    piece.stored = slice->Resolved(full);
    if (!piece.stored.Intersect(tensor.wanted, &piece.common)) continue;
    const StatusOr<pb::BundleEntryProto> stored = FindEntry(SliceKey(name, *slice), name);
    if (!stored.ok()) {
      return DataLoss("tensor ", name, " in ", table_->path(), ": slice ", slice->ToString(),
                      " has no entry of its own");
    }
    piece.entry = *stored;
    MR_RETURN_IF_ERROR(CheckPiece(name, tensor.dtype, piece));
    for (const BundleTensor::Piece& other : tensor.pieces) {
      TensorSlice both;
      if (piece.stored.Intersect(other.stored, &both)) {
        return Internal("tensor ", name, ": Overlapping slices: existing slice = ", other.stored.ToString(),
                        ", new slice = ", piece.stored.ToString());
      }
    }
    covered += piece.common.ShapeIn(full)->num_elements();
    tensor.pieces.push_back(std::move(piece));
  }
  if (covered < tensor.shape.num_elements()) {
    return InvalidArgument("Does not have sufficient slices for partitioned tensor ", name,
                           " to restore in slice_spec: ", wanted.ToString());
  }
  return tensor;
}

namespace {

// Whether so many elements can be stored in so many bytes. The file's size thereby bounds the memory.
bool Fits(DType dtype, uint64_t count, uint64_t size) {
  if (IsPlain(dtype)) return count <= size / SizeOf(dtype) && count * SizeOf(dtype) == size;
  constexpr uint64_t kChecksum = 4, kLeastLength = 1;
  if (dtype == DType::kVariant) return count <= size / (kLeastLength + kChecksum);
  return size >= kChecksum && count <= (size - kChecksum) / kLeastLength;
}

}  // namespace

std::string BundleReader::DataPath(const pb::BundleEntryProto& entry) const {
  return BundleDataPath(prefix_, entry.shard_id(), num_shards_);
}

Status BundleReader::CheckPiece(absl::string_view name, DType dtype, const BundleTensor::Piece& piece) const {
  const pb::BundleEntryProto& entry = piece.entry;
  const std::string path = DataPath(entry);
  Shape::Dims dims;
  for (int i = 0; i < piece.stored.rank(); ++i) dims.push_back(piece.stored.extent(i).length);
  const StatusOr<Shape> shape = Shape::FromProto(entry.shape());
  if (static_cast<DType>(entry.dtype()) != dtype || !shape.ok() || *shape != Shape(dims) || !entry.slices().empty()) {
    return DataLoss("tensor ", name, ": its entries in ", table_->path(), " contradict each other");
  }
  if (entry.shard_id() < 0 || entry.shard_id() >= num_shards_ || entry.offset() < 0 || entry.size() < 0) {
    return DataLoss("tensor ", name, ": its entry in ", table_->path(), " says shard ", entry.shard_id(), " of ",
                    num_shards_, ", offset ", entry.offset(), ", size ", entry.size());
  }
  const uint64_t count = static_cast<uint64_t>(shape->num_elements()), size = static_cast<uint64_t>(entry.size());
  if (!Fits(dtype, count, size)) {
    return DataLoss("tensor ", name, ": Invalid size in bundle entry of ", table_->path(), ": ", size, " bytes for ",
                    DTypeName(dtype), shape->ToString());
  }
  StatusOr<const Shard*> shard = OpenShard(entry.shard_id());
  if (!shard.ok()) return WithPrefix(absl::StrCat("tensor ", name, ": "), shard.status());
  if (size > (*shard)->size || static_cast<uint64_t>(entry.offset()) > (*shard)->size - size) {
    return DataLoss("tensor ", name, ": ", path, " is truncated: ", size, " bytes at ", entry.offset(),
                    " are past its end at ", (*shard)->size);
  }
  return absl::OkStatus();
}

StatusOr<const BundleReader::Shard*> BundleReader::OpenShard(int shard) const {
  MutexLock lock(&mu_);
  std::unique_ptr<Shard>& slot = shards_[shard];
  if (slot != nullptr) return slot.get();
  auto opened = std::make_unique<Shard>();
  opened->path = BundleDataPath(prefix_, shard, num_shards_);
  MR_ASSIGN_OR_RETURN(opened->file, files_->OpenRandomAccess(opened->path));
  MR_ASSIGN_OR_RETURN(opened->size, files_->FileSize(opened->path));
  slot = std::move(opened);
  return slot.get();
}

Status BundleReader::Read(absl::Span<const BundleTensor> tensors, absl::Span<Tensor* const> outputs, ThreadPool* pool,
                          CancellationManager* cancellation) const {
  return ReadBundleTensors(*this, tensors, outputs, pool, cancellation);
}

StatusOr<Tensor> BundleReader::Read(absl::string_view name) const {
  MR_ASSIGN_OR_RETURN(const BundleTensor found, Find(name));
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(found.dtype, found.shape));
  Tensor* const output = &tensor;
  MR_RETURN_IF_ERROR(Read({&found, 1}, {&output, 1}, nullptr));
  return tensor;
}

}  // namespace millrace
