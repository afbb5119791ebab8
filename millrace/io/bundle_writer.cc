#include <algorithm>
#include <utility>

#include "millrace/base/crc32c.h"
#include "millrace/io/bundle.h"
#include "millrace/io/coding.h"
#include "millrace/tensor/tensor_proto.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

// Bytes that are checksummed and then written at a time, small enough to stay in a core's cache in between.
constexpr size_t kWriteSize = size_t{1} << 20;
// How much is written before writeback is started.
constexpr uint64_t kSyncInterval = uint64_t{8} << 20;
// Tensors of this size begin at multiples of Buffer::kAlignment.
constexpr uint64_t kAligned = uint64_t{64} << 10;

}  // namespace

BundleWriter::BundleWriter(FileSystem* files, std::string prefix, CancellationManager* cancellation,
                           std::function<bool()> after_piece)
    : files_(files),
      prefix_(std::move(prefix)),
      cancellation_(cancellation),
      after_piece_(std::move(after_piece)),
      temporary_data_(bundle_internal::TemporaryName(BundleDataPath(prefix_, 0, 1))) {}

StatusOr<std::unique_ptr<BundleWriter>> BundleWriter::Create(FileSystem* files, std::string prefix,
                                                             CancellationManager* cancellation,
                                                             std::function<bool()> after_piece) {
  std::unique_ptr<BundleWriter> writer(
      new BundleWriter(files, std::move(prefix), cancellation, std::move(after_piece)));
  MR_RETURN_IF_ERROR(bundle_internal::MakeDirectoryOf(files, writer->prefix_));
  MR_ASSIGN_OR_RETURN(writer->data_, files->OpenWritable(writer->temporary_data_));
  return writer;
}

BundleWriter::~BundleWriter() {
  if (data_ == nullptr) return;
  data_.reset();
  files_->Remove(temporary_data_).IgnoreError();
}

Status BundleWriter::Add(absl::string_view name, const Tensor& tensor) {
  if (name.empty()) return InvalidArgument("a tensor of a checkpoint needs a name");
  return WriteEntry(std::string(name), tensor);
}

Status BundleWriter::AddSlice(absl::string_view name, const ShapeAndSlice& part, const Tensor& tensor) {
  if (part.part != tensor.shape()) {
    return InvalidArgument("Slice in shape_and_slice specification does not match the shape of the tensor to save: ",
                           part.slice.ToString(), " of ", part.full.ToString(),
                           ", tensor: ", tensor.shape().ToString());
  }
  return WriteSlice(name, part, tensor.dtype(), [&](const std::string& key) { return WriteEntry(key, tensor); });
}

Status BundleWriter::AddPieces(absl::string_view name, const ShapeAndSlice* part, DType dtype, const Shape& shape,
                               absl::FunctionRef<absl::string_view()> next) {
  if (!IsPlain(dtype)) return Unimplemented("tensors of type ", dtype, " are not saved in pieces");
  const auto write = [&](const std::string& key) {
    return WriteEntry(key, dtype, shape, [&](uint32_t* crc) -> Status {
      for (size_t left = static_cast<size_t>(shape.num_elements()) * SizeOf(dtype); left > 0;) {
        const absl::string_view piece = next();
        if (piece.empty() || piece.size() > left)
          return Internal("tensor ", name, ": ", piece.size(), " bytes were provided instead of the remaining ", left);
        MR_RETURN_IF_ERROR(WriteBytes(piece, crc));
        left -= piece.size();
      }
      return absl::OkStatus();
    });
  };
  if (part != nullptr) return WriteSlice(name, *part, dtype, write);
  if (name.empty()) return InvalidArgument("a tensor of a checkpoint needs a name");
  return write(std::string(name));
}

Status BundleWriter::WriteSlice(absl::string_view name, const ShapeAndSlice& part, DType dtype,
                                absl::FunctionRef<Status(const std::string& key)> write) {
  if (name.empty()) return InvalidArgument("a tensor of a checkpoint needs a name");
  if (part.slice.Covers(part.full)) return write(std::string(name));
  pb::BundleEntryProto whole;
  whole.set_dtype(static_cast<pb::DataType>(dtype));
  part.full.ToProto(whole.mutable_shape());
  const auto at = entries_.find(std::string(name));
  if (at != entries_.end()) {
    const StatusOr<Shape> known = Shape::FromProto(at->second.shape());
    if (at->second.slices().empty() || at->second.dtype() != whole.dtype() || !known.ok() || *known != part.full) {
      return InvalidArgument("slice ", part.slice.ToString(), " of tensor ", name, ", ", DTypeName(dtype),
                             part.full.ToString(), ", does not agree with its earlier slices");
    }
  }
  MR_RETURN_IF_ERROR(write(SliceKey(name, part.slice)));
  part.slice.ToProto(entries_.try_emplace(std::string(name), std::move(whole)).first->second.add_slices());
  return absl::OkStatus();
}

Status BundleWriter::WriteEntry(const std::string& key, const Tensor& tensor) {
  return WriteEntry(key, tensor.dtype(), tensor.shape(), [&](uint32_t* crc) {
    switch (tensor.dtype()) {
      case DType::kString:
        return WriteStrings(tensor, crc);
      case DType::kVariant:
        return WriteVariants(tensor, crc);
      default:
        return WriteBytes({static_cast<const char*>(tensor.raw_data()), tensor.TotalBytes()}, crc);
    }
  });
}

Status BundleWriter::WriteEntry(const std::string& key, DType dtype, const Shape& shape,
                                absl::FunctionRef<Status(uint32_t* crc)> write) {
  MR_RETURN_IF_ERROR(status_);
  if (data_ == nullptr) return FailedPrecondition("the checkpoint ", prefix_, " is finished already");
  if (!bundle_internal::CanStore(dtype)) return Unimplemented("tensors of type ", dtype, " cannot be saved");
  if (entries_.contains(key)) return InvalidArgument("Adding duplicate key: ", key);
  uint32_t crc = 0;
  if (IsPlain(dtype) && static_cast<uint64_t>(shape.num_elements()) * SizeOf(dtype) >= kAligned) {
    // So that a reader can map the file (mapped_bundle.h). The index has the offset of each tensor.
    const std::string padding((Buffer::kAlignment - offset_ % Buffer::kAlignment) % Buffer::kAlignment, '\0');
    status_ = WriteBytes(padding, &crc);
    MR_RETURN_IF_ERROR(status_);
    crc = 0;
  }
  const uint64_t begin = offset_;
  status_ = write(&crc);
  MR_RETURN_IF_ERROR(status_);
  pb::BundleEntryProto entry;
  entry.set_dtype(static_cast<pb::DataType>(dtype));
  shape.ToProto(entry.mutable_shape());
  entry.set_offset(static_cast<int64_t>(begin));
  entry.set_size(static_cast<int64_t>(offset_ - begin));
  entry.set_crc32c(MaskCrc(crc));
  entries_.emplace(key, std::move(entry));
  return absl::OkStatus();
}

Status BundleWriter::WriteBytes(absl::string_view bytes, uint32_t* crc) {
  while (!bytes.empty()) {
    if (cancellation_ != nullptr && cancellation_->IsCancelled()) return cancellation_->status();
    const absl::string_view piece = bytes.substr(0, kWriteSize);
    *crc = ExtendCrc32c(*crc, piece);
    MR_RETURN_IF_ERROR(data_->Append(piece));
    bytes.remove_prefix(piece.size());
    offset_ += piece.size();
    since_sync_ += piece.size();
    if (after_piece_ && piece.size() >= kWriteSize / 2) MR_RETURN_IF_ERROR(data_->SetPastCache(after_piece_()));
    if (since_sync_ >= kSyncInterval) {
      MR_RETURN_IF_ERROR(data_->StartSync());
      since_sync_ = 0;
    }
  }
  return absl::OkStatus();
}

// Format: all lengths as varints, a checksum of the lengths as fixed-size integers, all bytes.
Status BundleWriter::WriteStrings(const Tensor& tensor, uint32_t* crc) {
  uint32_t ignored = 0;
  std::string varints, fixed;
  const absl::Span<const std::string> strings = tensor.flat<std::string>();
  for (const std::string& s : strings) {
    PutVarint(&varints, s.size());
    s.size() > 0xffffffff ? PutFixed64(&fixed, s.size()) : PutFixed32(&fixed, static_cast<uint32_t>(s.size()));
    if (fixed.size() >= kWriteSize || &s == &strings.back()) {
      *crc = ExtendCrc32c(*crc, fixed);
      MR_RETURN_IF_ERROR(WriteBytes(varints, &ignored));
      varints.clear();
      fixed.clear();
    }
  }
  std::string length_crc;
  PutFixed32(&length_crc, MaskCrc(*crc));
  MR_RETURN_IF_ERROR(WriteBytes(length_crc, crc));
  for (const std::string& s : strings) MR_RETURN_IF_ERROR(WriteBytes(s, crc));
  return absl::OkStatus();
}

// Format of each element: its length as a varint, its message, and a checksum of all before it, in which lengths are
// fixed-size integers.
Status BundleWriter::WriteVariants(const Tensor& tensor, uint32_t* crc) {
  for (const Variant& variant : tensor.flat<Variant>()) {
    pb::VariantTensorDataProto message;
    if (!variant.empty()) {
      std::vector<Tensor> tensors;
      MR_RETURN_IF_ERROR(variant.value()->Encode(message.mutable_metadata(), &tensors));
      message.set_type_name(std::string(variant.value()->TypeName()));
      for (const Tensor& inner : tensors) TensorToProtoFields(inner, message.add_tensors());
    }
    const std::string bytes = message.SerializeAsString();
    std::string length, fixed, checksum;
    PutVarint(&length, bytes.size());
    PutFixed64(&fixed, bytes.size());
    uint32_t ignored = 0;
    MR_RETURN_IF_ERROR(WriteBytes(length, &ignored));
    *crc = ExtendCrc32c(*crc, fixed);
    MR_RETURN_IF_ERROR(WriteBytes(bytes, crc));
    PutFixed32(&checksum, MaskCrc(*crc));
    MR_RETURN_IF_ERROR(WriteBytes(checksum, crc));
  }
  return absl::OkStatus();
}

Status BundleWriter::Finish() {
  MR_RETURN_IF_ERROR(status_);
  if (data_ == nullptr) return FailedPrecondition("the checkpoint ", prefix_, " is finished already");
  status_ = FailedPrecondition("the checkpoint ", prefix_, " was not finished");  // replaced on success
  MR_RETURN_IF_ERROR(data_->Sync());
  MR_RETURN_IF_ERROR(data_->Close());
  const std::string index = bundle_internal::TemporaryName(BundleIndexPath(prefix_));
  const bundle_internal::DataMove move = {temporary_data_, BundleDataPath(prefix_, 0, 1)};
  Status status = bundle_internal::WriteIndex(files_, index, 1, entries_);
  // Whoever asked for it may have given up while the disk did not answer.
  if (status.ok() && cancellation_ != nullptr) status = cancellation_->status();
  if (status.ok()) status = bundle_internal::Publish(files_, prefix_, {&move, 1}, {}, index);
  if (!status.ok()) {
    files_->Remove(index).IgnoreError();
    return status;
  }
  data_.reset();
  status_ = absl::OkStatus();
  return absl::OkStatus();
}

}  // namespace millrace
