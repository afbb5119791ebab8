// The ops that create readers, one per kind of file.
#include <cstdint>
#include <optional>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/io/buffered_input.h"
#include "millrace/io/record.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/ops/io/reader.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

StatusOr<std::unique_ptr<SequentialFile>> OpenWork(FileSystem* files, const std::string& work) {
  if (files == nullptr) return Internal("the step has no files");
  MR_ASSIGN_OR_RETURN(const std::string path, LocalPath(work));
  return files->OpenSequential(path);
}

// The record is the name itself.
class IdentitySource : public RecordSource {
 public:
  explicit IdentitySource(KernelInit&) {}
  static constexpr char kKind[] = "IdentityReader";
  Status Begin(FileSystem*, const std::string& work) override {
    work_ = work;
    return absl::OkStatus();
  }
  StatusOr<Result> Next(FileSystem* files, std::string* key, std::string* value) override {
    *key = *value = work_;
    return Result::kLastRecord;
  }
  void End() override {}
  bool state_is_counts() const override { return true; }

 private:
  std::string work_;
};

class WholeFileSource : public RecordSource {
 public:
  explicit WholeFileSource(KernelInit&) {}
  static constexpr char kKind[] = "WholeFileReader";
  Status Begin(FileSystem*, const std::string& work) override {
    work_ = work;
    return absl::OkStatus();
  }
  StatusOr<Result> Next(FileSystem* files, std::string* key, std::string* value) override {
    if (files == nullptr) return Internal("the step has no files");
    *key = work_;
    MR_ASSIGN_OR_RETURN(const std::string path, LocalPath(work_));
    MR_ASSIGN_OR_RETURN(*value, ReadWholeFile(files, path));
    return Result::kLastRecord;
  }
  void End() override {}
  bool state_is_counts() const override { return true; }

 private:
  std::string work_;
};

class TextLineSource : public RecordSource {
 public:
  explicit TextLineSource(KernelInit& init) {
    init.Attr("skip_header_lines", &skip_);
    if (skip_ < 0) init.Fail(InvalidArgument("skip_header_lines must be >= 0 not ", skip_));
  }
  static constexpr char kKind[] = "TextLineReader";

  Status Begin(FileSystem* files, const std::string& work) override {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, OpenWork(files, work));
    work_ = work;
    line_ = 0;
    input_.emplace(std::move(file));
    return absl::OkStatus();
  }
  StatusOr<Result> Next(FileSystem* files, std::string* key, std::string* value) override {
    do {
      MR_ASSIGN_OR_RETURN(const bool more, input_->ReadLine(value));
      if (!more) return Result::kEnd;
    } while (line_++ < skip_);
    *key = absl::StrCat(work_, ":", line_);
    return Result::kRecord;
  }
  void End() override { input_.reset(); }

 private:
  int64_t skip_ = 0;
  std::string work_;
  int64_t line_ = 0;  // lines read so far
  std::optional<BufferedInput> input_;
};

class TfRecordSource : public RecordSource {
 public:
  explicit TfRecordSource(KernelInit& init) {
    std::string compression;
    init.Attr("compression_type", &compression);
    compression_ = CompressionOf(compression);
  }
  static constexpr char kKind[] = "TFRecordReader";

  Status Begin(FileSystem* files, const std::string& work) override {
    if (files == nullptr) return Internal("the step has no files");
    MR_ASSIGN_OR_RETURN(const std::string path, LocalPath(work));
    MR_ASSIGN_OR_RETURN(reader_, RecordReader::Open(files, path, compression_));
    work_ = work;
    return absl::OkStatus();
  }
  StatusOr<Result> Next(FileSystem* files, std::string* key, std::string* value) override {
    *key = absl::StrCat(work_, ":", reader_->offset());
    MR_ASSIGN_OR_RETURN(const bool more, reader_->Read(value));
    return more ? Result::kRecord : Result::kEnd;
  }
  void End() override { reader_.reset(); }

 private:
  Compression compression_ = Compression::kNone;
  std::string work_;
  std::unique_ptr<RecordReader> reader_;
};

class FixedLengthSource : public RecordSource {
 public:
  explicit FixedLengthSource(KernelInit& init) {
    const auto take = [&](const char* name, uint64_t* value) {
      int64_t given = 0;
      init.Attr(name, &given);
      if (given < 0) init.Fail(InvalidArgument(name, " must be >= 0 not ", given));
      *value = given < 0 ? 0 : static_cast<uint64_t>(given);
    };
    take("header_bytes", &header_);
    take("record_bytes", &record_);
    take("footer_bytes", &footer_);
    take("hop_bytes", &hop_);
    if (hop_ == 0) hop_ = record_;
    if (init.node().FindAttr("encoding") != nullptr) {
      std::string encoding;
      init.Attr("encoding", &encoding);
      compression_ = CompressionOf(encoding);
    }
  }
  static constexpr char kKind[] = "FixedLengthRecordReader";

  Status Begin(FileSystem* files, const std::string& work) override {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, OpenWork(files, work));
    MR_ASSIGN_OR_RETURN(file, Decompressed(std::move(file), work, compression_));
    input_.emplace(std::move(file), compression_ == Compression::kNone ? size_t{256} << 10 : 1);
    work_ = work;
    count_ = 0;
    window_.clear();
    MR_ASSIGN_OR_RETURN(const uint64_t skipped, input_->Skip(header_));
    if (skipped < header_) return OutOfRange("reached end of file in the header of ", work);
    return absl::OkStatus();
  }
  StatusOr<Result> Next(FileSystem* files, std::string* key, std::string* value) override {
    // A record is complete only if the footer still follows it.
    const uint64_t needed = record_ + footer_;
    if (window_.size() < needed) {
      MR_RETURN_IF_ERROR(input_->Read(needed - window_.size(), &window_).status());
      if (window_.size() < needed) return Result::kEnd;
    }
    *key = absl::StrCat(work_, ":", count_++);
    *value = window_.substr(0, record_);
    const uint64_t dropped = std::min<uint64_t>(hop_, window_.size());
    window_.erase(0, dropped);
    MR_RETURN_IF_ERROR(input_->Skip(hop_ - dropped).status());
    return Result::kRecord;
  }
  void End() override {
    input_.reset();
    window_.clear();
  }

 private:
  uint64_t header_ = 0, record_ = 0, footer_ = 0, hop_ = 0;
  Compression compression_ = Compression::kNone;
  std::string work_;
  int64_t count_ = 0;
  std::optional<BufferedInput> input_;
  std::string window_;  // data read from the beginning of the next record on
};

template <typename Source>
class ReaderKernel : public Kernel {
 public:
  explicit ReaderKernel(KernelInit& init) : source_(init) { Source checked(init); }

  Status Compute(KernelContext& ctx) override {
    return source_.Emit(
        ctx,
        [&]() -> StatusOr<RefPtr<Reader>> {
          KernelInit init(ctx.node(), ctx.device());
          auto source = std::make_unique<Source>(init);
          MR_RETURN_IF_ERROR(init.status());
          return MakeRef<Reader>(source_.name(), Source::kKind, std::move(source));
        },
        [](const Reader&) { return absl::OkStatus(); });
  }

 private:
  ResourceSource<Reader> source_;
};

#define MR_READER_END(text) Stateful().Shape(ScalarShape).NotDifferentiable().Summary(text)
#define MR_NAMED(op) op.Attr("container: string = ''").Attr("shared_name: string = ''")

#define MR_IDENTITY_READER(name, handle)                       \
  MR_NAMED(MILLRACE_OP(name).Output("reader_handle: " handle)) \
      .MR_READER_END("A reader whose records are the names in the queue.")
MR_IDENTITY_READER(IdentityReader, "Ref(string)");
MR_IDENTITY_READER(IdentityReaderV2, "resource");

#define MR_WHOLE_FILE_READER(name, handle) \
  MR_NAMED(MILLRACE_OP(name).Output("reader_handle: " handle)).MR_READER_END("A reader of whole files.")
MR_WHOLE_FILE_READER(WholeFileReader, "Ref(string)");
MR_WHOLE_FILE_READER(WholeFileReaderV2, "resource");

#define MR_TEXT_LINE_READER(name, handle)                                                         \
  MR_NAMED(MILLRACE_OP(name).Output("reader_handle: " handle).Attr("skip_header_lines: int = 0")) \
      .MR_READER_END("A reader of lines.")
MR_TEXT_LINE_READER(TextLineReader, "Ref(string)");
MR_TEXT_LINE_READER(TextLineReaderV2, "resource");

#define MR_TF_RECORD_READER(name, handle)                      \
  MR_NAMED(MILLRACE_OP(name).Output("reader_handle: " handle)) \
      .Attr("compression_type: string = ''")                   \
      .MR_READER_END("A reader of TFRecord files.")
MR_TF_RECORD_READER(TFRecordReader, "Ref(string)");
MR_TF_RECORD_READER(TFRecordReaderV2, "resource");

#define MR_FIXED_LENGTH_READER(name, handle)     \
  MR_NAMED(MILLRACE_OP(name)                     \
               .Output("reader_handle: " handle) \
               .Attr("header_bytes: int = 0")    \
               .Attr("record_bytes: int")        \
               .Attr("footer_bytes: int = 0")    \
               .Attr("hop_bytes: int = 0"))
MR_FIXED_LENGTH_READER(FixedLengthRecordReader, "Ref(string)").MR_READER_END("A reader of records of one length.");
MR_FIXED_LENGTH_READER(FixedLengthRecordReaderV2, "resource")
    .Attr("encoding: string = ''")
    .MR_READER_END("A reader of records of one length, of files that may be compressed.");

MILLRACE_KERNEL(IdentityReader, kCpu, ReaderKernel<IdentitySource>);
MILLRACE_KERNEL(IdentityReaderV2, kCpu, ReaderKernel<IdentitySource>);
MILLRACE_KERNEL(WholeFileReader, kCpu, ReaderKernel<WholeFileSource>);
MILLRACE_KERNEL(WholeFileReaderV2, kCpu, ReaderKernel<WholeFileSource>);
MILLRACE_KERNEL(TextLineReader, kCpu, ReaderKernel<TextLineSource>);
MILLRACE_KERNEL(TextLineReaderV2, kCpu, ReaderKernel<TextLineSource>);
MILLRACE_KERNEL(TFRecordReader, kCpu, ReaderKernel<TfRecordSource>);
MILLRACE_KERNEL(TFRecordReaderV2, kCpu, ReaderKernel<TfRecordSource>);
MILLRACE_KERNEL(FixedLengthRecordReader, kCpu, ReaderKernel<FixedLengthSource>);
MILLRACE_KERNEL(FixedLengthRecordReaderV2, kCpu, ReaderKernel<FixedLengthSource>);

}  // namespace
}  // namespace millrace
