#include "millrace/io/bundle_reading.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_format.h"
#include "millrace/base/crc32c.h"
#include "millrace/io/coding.h"
#include "millrace/tensor/tensor_proto.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

// A multiple of every element size.
constexpr uint64_t kReadSize = uint64_t{1} << 20;
// How many pieces are prefetched ahead of the one being read.
constexpr size_t kAhead = 16;

Status WrongChecksum(const std::string& name, const std::string& path, uint32_t stored, uint32_t computed) {
  return DataLoss("tensor ", name, ": ", path, " is damaged: the checksum of its bytes is ",
                  absl::StrFormat("%08x, stored is %08x", computed, stored));
}

}  // namespace

class BundleReading {
 public:
  BundleReading(const BundleReader& reader, CancellationManager* cancellation)
      : reader_(reader), cancellation_(cancellation) {}

  Status Plan(const BundleTensor& tensor, Tensor* output) {
    if (output->dtype() != tensor.dtype || output->shape() != tensor.shape) {
      return Internal("tensor ", tensor.name, " is read into memory of another type or shape");
    }
    for (const BundleTensor::Piece& piece : tensor.pieces) {
      MR_ASSIGN_OR_RETURN(const BundleReader::Shard* const shard, reader_.OpenShard(piece.entry.shard_id()));
      const size_t run = runs_.size();
      runs_.push_back({&tensor, &piece, shard, output, works_.size(), 0});
      const auto size = static_cast<uint64_t>(piece.entry.size());
      const uint64_t step = IsPlain(tensor.dtype) ? kReadSize : std::max<uint64_t>(size, 1);
      for (uint64_t at = 0; at < size; at += step) works_.push_back({run, at, std::min(step, size - at), 0});
      runs_.back().works_end = works_.size();
    }
    return absl::OkStatus();
  }

  Status Run(ThreadPool* pool) {
    // Small pieces are batched.
    std::vector<size_t> batches = {0};
    uint64_t bytes = 0;
    for (size_t i = 0; i < works_.size(); ++i) {
      bytes += works_[i].size;
      if (bytes >= kReadSize / 2 || i + 1 == works_.size()) {
        batches.push_back(i + 1);
        bytes = 0;
      }
    }
    // With several threads reading, the kernel does not detect sequential access; prefetch explicitly.
    for (size_t i = 0; i < std::min(kAhead, works_.size()); ++i) Announce(works_[i]);
    const auto body = [&](int64_t begin, int64_t end) {
      std::string scratch;
      for (int64_t batch = begin; batch < end; ++batch) {
        for (size_t i = batches[static_cast<size_t>(batch)]; i < batches[static_cast<size_t>(batch) + 1]; ++i) {
          if (failed_.load(std::memory_order_relaxed)) return;
          if (i + kAhead < works_.size()) Announce(works_[i + kAhead]);
          const Status status = Do(works_[i], &scratch);
          if (!status.ok()) Fail(status);
        }
      }
    };
    const auto total = static_cast<int64_t>(batches.size()) - 1;
    if (pool != nullptr && total > 1) {
      pool->ParallelFor(total, 1, body);
    } else {
      body(0, total);
    }
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(status_);
    for (const Stored& run : runs_) MR_RETURN_IF_ERROR(Check(run));
    return absl::OkStatus();
  }

 private:
  // A stored range of bytes and the work items that read it.
  struct Stored {
    const BundleTensor* tensor;
    const BundleTensor::Piece* piece;
    const BundleReader::Shard* shard;
    Tensor* output;
    size_t works_begin, works_end;
  };
  struct Work {
    size_t run;
    uint64_t at, size;
    uint32_t crc;
  };

  void Announce(const Work& work) const {
    const Stored& run = runs_[work.run];
    if (work.size < kReadSize / 2) return;  // readahead of the neighbours covers small ones
    run.shard->file->WillRead(static_cast<uint64_t>(run.piece->entry.offset()) + work.at, work.size);
  }

  Status ReadAt(const Stored& run, uint64_t at, uint64_t size, char* to) const {
    const uint64_t offset = static_cast<uint64_t>(run.piece->entry.offset()) + at;
    StatusOr<size_t> got = run.shard->file->Read(offset, size, to);
    if (!got.ok()) return WithPrefix(absl::StrCat("tensor ", run.tensor->name, ": "), got.status());
    if (*got == size) return absl::OkStatus();
    return DataLoss("tensor ", run.tensor->name, ": ", run.shard->path, " is truncated: it ends at ", offset + *got);
  }

  Status Do(Work& work, std::string* scratch) {
    if (cancellation_ != nullptr && cancellation_->IsCancelled()) return cancellation_->status();
    const Stored& run = runs_[work.run];
    if (run.tensor->dtype == DType::kString) return ReadStrings(run);
    if (run.tensor->dtype == DType::kVariant) return ReadVariants(run);
    const auto element = static_cast<int64_t>(SizeOf(run.tensor->dtype));
    const auto first = static_cast<int64_t>(work.at) / element;
    const auto last = static_cast<int64_t>(work.at + work.size) / element;
    const int64_t place = PlaceInOutput(run);
    const bool direct = place >= 0;
    char* to = static_cast<char*>(run.output->raw_data()) + place * element + work.at;
    if (!direct) {
      scratch->resize(kReadSize);
      to = scratch->data();
    }
    MR_RETURN_IF_ERROR(ReadAt(run, work.at, work.size, to));
    work.crc = Crc32c({to, work.size});
    if (!direct) CopyCommonPart(run.piece->stored, to, first, last, run.piece->common, run.tensor->wanted, run.output);
    return absl::OkStatus();
  }

  // The first output element of a range that can be read directly into the output, or -1 if it must be copied slice by
  // slice.
  static int64_t PlaceInOutput(const Stored& run) {
    const TensorSlice& stored = run.piece->stored;
    const TensorSlice& wanted = run.tensor->wanted;
    if (stored == wanted) return 0;
    if (stored != run.piece->common) return -1;
    for (int i = 1; i < stored.rank(); ++i) {
      if (stored.extent(i) != wanted.extent(i)) return -1;
    }
    return (stored.start(0) - wanted.start(0)) * run.output->shape().Product(1, stored.rank());
  }

  Status ReadStrings(const Stored& run) const {
    const pb::BundleEntryProto& entry = run.piece->entry;
    std::string bytes(static_cast<size_t>(entry.size()), '\0');
    MR_RETURN_IF_ERROR(ReadAt(run, 0, bytes.size(), bytes.data()));
    absl::string_view rest = bytes;
    Shape::Dims dims;
    for (int i = 0; i < run.piece->stored.rank(); ++i) dims.push_back(run.piece->stored.extent(i).length);
    std::vector<uint64_t> lengths(static_cast<size_t>(Shape(dims).num_elements()));
    uint32_t crc = 0;
    uint64_t total = 0;
    std::string fixed;
    const Status damaged = DataLoss("tensor ", run.tensor->name, ": ", run.shard->path,
                                    " is damaged: the lengths of its strings are inconsistent");
    for (uint64_t& length : lengths) {
      if (!TakeVarint(&rest, &length) || length > bytes.size() - total) return damaged;
      total += length;
      fixed.clear();
      length > 0xffffffff ? PutFixed64(&fixed, length) : PutFixed32(&fixed, static_cast<uint32_t>(length));
      crc = ExtendCrc32c(crc, fixed);
    }
    if (rest.size() < 4 || rest.size() - 4 != total) return damaged;
    if (UnmaskCrc(GetFixed32(rest.data())) != crc) {
      return WrongChecksum(run.tensor->name, run.shard->path, UnmaskCrc(GetFixed32(rest.data())), crc);
    }
    crc = ExtendCrc32c(crc, rest);
    if (crc != UnmaskCrc(entry.crc32c())) {
      return WrongChecksum(run.tensor->name, run.shard->path, UnmaskCrc(entry.crc32c()), crc);
    }
    rest.remove_prefix(4);
    std::vector<std::string> strings;
    strings.reserve(lengths.size());
    for (const uint64_t length : lengths) {
      strings.emplace_back(rest.substr(0, length));
      rest.remove_prefix(length);
    }
    if (run.piece->stored == run.tensor->wanted) {
      std::move(strings.begin(), strings.end(), run.output->data<std::string>());
    } else {
      CopyCommonPart(run.piece->stored, strings.data(), 0, static_cast<int64_t>(strings.size()), run.piece->common,
                     run.tensor->wanted, run.output);
    }
    return absl::OkStatus();
  }

  // See BundleWriter::WriteVariants. All checksums are verified before anything is decoded.
  Status ReadVariants(const Stored& run) const {
    std::string bytes(static_cast<size_t>(run.piece->entry.size()), '\0');
    MR_RETURN_IF_ERROR(ReadAt(run, 0, bytes.size(), bytes.data()));
    absl::string_view rest = bytes;
    std::vector<absl::string_view> messages(static_cast<size_t>(run.output->num_elements()));
    uint32_t crc = 0;
    for (absl::string_view& message : messages) {
      uint64_t length = 0;
      constexpr size_t kChecksum = 4;
      if (!TakeVarint(&rest, &length) || rest.size() < kChecksum || length > rest.size() - kChecksum) {
        return DataLoss("tensor ", run.tensor->name, ": ", run.shard->path,
                        " is damaged: the lengths of its variants are inconsistent");
      }
      message = rest.substr(0, length);
      std::string fixed;
      PutFixed64(&fixed, length);
      crc = ExtendCrc32c(ExtendCrc32c(crc, fixed), message);
      rest.remove_prefix(length);
      const uint32_t stored = UnmaskCrc(GetFixed32(rest.data()));
      if (stored != crc) return WrongChecksum(run.tensor->name, run.shard->path, stored, crc);
      crc = ExtendCrc32c(crc, rest.substr(0, kChecksum));
      rest.remove_prefix(kChecksum);
    }
    const uint32_t stored = UnmaskCrc(run.piece->entry.crc32c());
    if (stored != crc) return WrongChecksum(run.tensor->name, run.shard->path, stored, crc);
    if (!rest.empty()) {
      return DataLoss("tensor ", run.tensor->name, ": ", run.shard->path, " has ", rest.size(), " bytes too many");
    }
    for (size_t i = 0; i < messages.size(); ++i) {
      StatusOr<Variant> value = VariantFrom(messages[i]);
      if (!value.ok()) {
        return WithPrefix(absl::StrCat("tensor ", run.tensor->name, " in ", run.shard->path, ": "), value.status());
      }
      run.output->data<Variant>()[i] = *std::move(value);
    }
    return absl::OkStatus();
  }

  static StatusOr<Variant> VariantFrom(absl::string_view message) {
    pb::TensorProto scalar;
    scalar.set_dtype(pb::DT_VARIANT);
    scalar.mutable_tensor_shape();
    pb::VariantTensorDataProto* const item = scalar.add_variant_val();
    if (!item->ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      return DataLoss("a variant cannot be parsed");
    }
    if (item->type_name().empty()) return Variant();
    MR_ASSIGN_OR_RETURN(const Tensor tensor, TensorFromProto(scalar));
    return tensor.scalar<Variant>();
  }

  Status Check(const Stored& run) const {
    if (!IsPlain(run.tensor->dtype)) return absl::OkStatus();  // checked while reading
    uint32_t crc = 0;
    for (size_t i = run.works_begin; i < run.works_end; ++i) crc = JoinCrc32c(crc, works_[i].crc, works_[i].size);
    const uint32_t stored = UnmaskCrc(run.piece->entry.crc32c());
    return crc == stored ? absl::OkStatus() : WrongChecksum(run.tensor->name, run.shard->path, stored, crc);
  }

  void Fail(const Status& status) {
    MutexLock lock(&mu_);
    if (status_.ok()) status_ = status;
    failed_.store(true, std::memory_order_relaxed);
  }

  const BundleReader& reader_;
  CancellationManager* const cancellation_;
  std::vector<Stored> runs_;
  std::vector<Work> works_;
  std::atomic<bool> failed_{false};
  Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
};

Status ReadBundleTensors(const BundleReader& reader, absl::Span<const BundleTensor> tensors,
                         absl::Span<Tensor* const> outputs, ThreadPool* pool, CancellationManager* cancellation) {
  BundleReading reading(reader, cancellation);
  for (size_t i = 0; i < tensors.size(); ++i) MR_RETURN_IF_ERROR(reading.Plan(tensors[i], outputs[i]));
  return reading.Run(pool);
}

}  // namespace millrace
