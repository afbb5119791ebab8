// Datasets of records in files: TextLineDataset, FixedLengthRecordDataset, TFRecordDataset.
#include <functional>
#include <utility>

#include "millrace/base/file.h"
#include "millrace/io/buffered_input.h"
#include "millrace/io/gzip.h"
#include "millrace/io/record.h"
#include "millrace/ops/dataset/dataset_value.h"

namespace millrace {
namespace {

// Reads the next record of a file; returns false at the end of the file.
using NextRecord = std::function<StatusOr<bool>(std::string* record)>;
// Opens file `number`, whose name is `path`.
using OpenFile = std::function<StatusOr<NextRecord>(size_t number, const std::string& path)>;

// The records of all files, file by file.
Dataset RecordsOf(std::vector<std::string> paths, OpenFile open) {
  auto all = std::make_shared<const std::vector<std::string>>(std::move(paths));
  return Dataset::FromGenerator([all, open = std::move(open)](uint64_t) -> Generator {
    return [all, open, file = size_t{0}, next = NextRecord()](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
      for (; file < all->size(); ++file, next = nullptr) {
        if (next == nullptr) {
          MR_ASSIGN_OR_RETURN(next, open(file, (*all)[file]));
        }
        std::string record;
        MR_ASSIGN_OR_RETURN(const bool more, next(&record));
        if (more) {
          element->push_back(Tensor::Scalar(std::move(record)));
          return true;
        }
      }
      return false;
    };
  });
}

class FileDatasetKernel : public DatasetKernel {
 protected:
  static StatusOr<std::vector<std::string>> FileNames(KernelContext& ctx) {
    const Tensor& names = ctx.input(0);
    if (names.rank() > 1) return InvalidArgument("`filenames` must be a scalar or a vector.");
    const auto flat = names.flat<std::string>();
    return std::vector<std::string>(flat.begin(), flat.end());
  }
  static StatusOr<Compression> CompressionInput(KernelContext& ctx, int i) {
    MR_ASSIGN_OR_RETURN(const std::string name, Scalar<std::string>(ctx, i, "compression_type"));
    if (!name.empty() && name != "GZIP" && name != "ZLIB") {
      return InvalidArgument("Unsupported compression_type '", name, "': '', 'GZIP' and 'ZLIB' are known");
    }
    return CompressionOf(name);
  }
  static StatusOr<std::shared_ptr<BufferedInput>> Open(FileSystem* files, const std::string& path,
                                                       Compression compression) {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, files->OpenSequential(path));
    if (compression != Compression::kNone) {
      MR_ASSIGN_OR_RETURN(file, Decompressed(std::move(file), path, compression));
    }
    return std::make_shared<BufferedInput>(std::move(file));
  }
};

class TextLineDatasetKernel : public FileDatasetKernel {
 public:
  explicit TextLineDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> paths, FileNames(ctx));
    MR_ASSIGN_OR_RETURN(const Compression compression, CompressionInput(ctx, 1));
    MR_RETURN_IF_ERROR(Count(ctx, 2, "buffer_size", -1).status());
    return RecordsOf(std::move(paths),
                     [files = ctx.step().files, compression](size_t, const std::string& path) -> StatusOr<NextRecord> {
                       MR_ASSIGN_OR_RETURN(std::shared_ptr<BufferedInput> input, Open(files, path, compression));
                       return NextRecord([input](std::string* line) { return input->ReadLine(line); });
                     });
  }
};

struct FixedLayout {
  uint64_t header = 0, record = 0, footer = 0;
};

// The number of records in a file of `bytes` bytes. INVALID_ARGUMENT if it is not a multiple of the record size.
StatusOr<uint64_t> RecordsIn(const FixedLayout& layout, uint64_t bytes, const std::string& path) {
  if (bytes < layout.header || bytes - layout.header < layout.footer ||
      (bytes - layout.header - layout.footer) % layout.record != 0) {
    return InvalidArgument("Excluding the header (", layout.header, " bytes) and footer (", layout.footer,
                           " bytes), input file \"", path,
                           "\" has a body that is not an exact multiple of the record "
                           "length (",
                           layout.record, " bytes): it has ", bytes, " bytes");
  }
  return (bytes - layout.header - layout.footer) / layout.record;
}

class FixedLengthRecordDatasetKernel : public FileDatasetKernel {
 public:
  explicit FixedLengthRecordDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> paths, FileNames(ctx));
    MR_ASSIGN_OR_RETURN(const int64_t header, Count(ctx, 1, "header_bytes", 0));
    MR_ASSIGN_OR_RETURN(const int64_t record, Count(ctx, 2, "record_bytes", 1));
    MR_ASSIGN_OR_RETURN(const int64_t footer, Count(ctx, 3, "footer_bytes", 0));
    MR_RETURN_IF_ERROR(Count(ctx, 4, "buffer_size", -1).status());
    Compression compression = Compression::kNone;
    if (ctx.num_inputs() > 5) {
      MR_ASSIGN_OR_RETURN(compression, CompressionInput(ctx, 5));
    }
    const FixedLayout layout{static_cast<uint64_t>(header), static_cast<uint64_t>(record),
                             static_cast<uint64_t>(footer)};
    return RecordsOf(
        std::move(paths),
        [files = ctx.step().files, layout, compression](size_t, const std::string& path) -> StatusOr<NextRecord> {
          MR_ASSIGN_OR_RETURN(const uint64_t bytes, SizeOf(files, path, compression));
          MR_ASSIGN_OR_RETURN(const uint64_t records, RecordsIn(layout, bytes, path));
          MR_ASSIGN_OR_RETURN(std::shared_ptr<BufferedInput> input, Open(files, path, compression));
          MR_RETURN_IF_ERROR(input->Skip(layout.header).status());
          return NextRecord(
              [input, left = records, size = layout.record, path](std::string* out) mutable -> StatusOr<bool> {
                if (left == 0) return false;
                --left;
                MR_ASSIGN_OR_RETURN(const size_t got, input->Read(size, out));
                if (got != size) return DataLoss(path, " ends in the middle of a record");
                return true;
              });
        });
  }

 private:
  // The decompressed size.
  static StatusOr<uint64_t> SizeOf(FileSystem* files, const std::string& path, Compression compression) {
    if (compression == Compression::kNone) return files->FileSize(path);
    MR_ASSIGN_OR_RETURN(std::shared_ptr<BufferedInput> input, Open(files, path, compression));
    return input->Skip(~uint64_t{0});
  }
};

class TFRecordDatasetKernel : public FileDatasetKernel {
 public:
  explicit TFRecordDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> paths, FileNames(ctx));
    MR_ASSIGN_OR_RETURN(const Compression compression, CompressionInput(ctx, 1));
    MR_RETURN_IF_ERROR(Count(ctx, 2, "buffer_size", -1).status());
    std::vector<int64_t> offsets;
    if (ctx.num_inputs() > 3) {
      const auto given = ctx.input(3).flat<int64_t>();
      offsets.assign(given.begin(), given.end());
      if (!offsets.empty() && offsets.size() != paths.size()) {
        return InvalidArgument("there are ", paths.size(), " files and ", offsets.size(), " byte_offsets");
      }
    }
    return RecordsOf(std::move(paths),
                     [files = ctx.step().files, compression, offsets](size_t number,
                                                                      const std::string& path) -> StatusOr<NextRecord> {
                       MR_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> opened,
                                           RecordReader::Open(files, path, compression));
                       std::shared_ptr<RecordReader> reader = std::move(opened);
                       const int64_t offset = offsets.empty() ? 0 : offsets[number];
                       MR_RETURN_IF_ERROR(SkipTo(*reader, offset, path));
                       return NextRecord([reader](std::string* record) { return reader->Read(record); });
                     });
  }

 private:
  static Status SkipTo(RecordReader& reader, int64_t offset, const std::string& path) {
    std::string skipped;
    while (static_cast<int64_t>(reader.offset()) < offset) {
      MR_ASSIGN_OR_RETURN(const bool more, reader.Read(&skipped));
      if (!more) break;
    }
    if (static_cast<int64_t>(reader.offset()) == offset) return absl::OkStatus();
    return DataLoss("no record of ", path, " begins at byte ", offset);
  }
};

MILLRACE_OP(TextLineDataset)
    .Input("filenames: string")
    .Input("compression_type: string")
    .Input("buffer_size: int64")
    .Output("handle: variant")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset of the lines of text files.");

MILLRACE_OP(FixedLengthRecordDataset)
    .Input("filenames: string")
    .Input("header_bytes: int64")
    .Input("record_bytes: int64")
    .Input("footer_bytes: int64")
    .Input("buffer_size: int64")
    .Output("handle: variant")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset of the fixed-length records of files.");

MILLRACE_OP(FixedLengthRecordDatasetV2)
    .Input("filenames: string")
    .Input("header_bytes: int64")
    .Input("record_bytes: int64")
    .Input("footer_bytes: int64")
    .Input("buffer_size: int64")
    .Input("compression_type: string")
    .Output("handle: variant")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset of the fixed-length records of files, which may be compressed.");

MILLRACE_OP(TFRecordDataset)
    .Input("filenames: string")
    .Input("compression_type: string")
    .Input("buffer_size: int64")
    .Output("handle: variant")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset of the records of TFRecord files.");

MILLRACE_OP(TFRecordDatasetV2)
    .Input("filenames: string")
    .Input("compression_type: string")
    .Input("buffer_size: int64")
    .Input("byte_offsets: int64")
    .Output("handle: variant")
    .Attr("metadata: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A dataset of the records of TFRecord files, each from a given byte offset.");

MILLRACE_KERNEL(TextLineDataset, kCpu, TextLineDatasetKernel);
MILLRACE_KERNEL(FixedLengthRecordDataset, kCpu, FixedLengthRecordDatasetKernel);
MILLRACE_KERNEL(FixedLengthRecordDatasetV2, kCpu, FixedLengthRecordDatasetKernel);
MILLRACE_KERNEL(TFRecordDataset, kCpu, TFRecordDatasetKernel);
MILLRACE_KERNEL(TFRecordDatasetV2, kCpu, TFRecordDatasetKernel);

}  // namespace
}  // namespace millrace
