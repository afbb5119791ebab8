// Datasets of records in files: TextLineDataset, FixedLengthRecordDataset, TFRecordDataset.
#include <utility>

#include "millrace/base/file.h"
#include "millrace/ops/dataset/dataset_value.h"

namespace millrace {
namespace {

class FileDatasetKernel : public DatasetKernel {
 protected:
  static StatusOr<std::vector<std::string>> FileNames(KernelContext& ctx) {
    const Tensor& names = ctx.input(0);
    if (names.rank() > 1) return InvalidArgument("`filenames` must be a scalar or a vector.");
    const auto flat = names.flat<std::string>();
    return std::vector<std::string>(flat.begin(), flat.end());
  }
  static StatusOr<std::string> CompressionInput(KernelContext& ctx, int i) {
    MR_ASSIGN_OR_RETURN(std::string name, Scalar<std::string>(ctx, i, "compression_type"));
    if (!name.empty() && name != "GZIP" && name != "ZLIB") {
      return InvalidArgument("Unsupported compression_type '", name, "': '', 'GZIP' and 'ZLIB' are known");
    }
    return name;
  }
};

class TextLineDatasetKernel : public FileDatasetKernel {
 public:
  explicit TextLineDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> paths, FileNames(ctx));
    MR_ASSIGN_OR_RETURN(const std::string compression, CompressionInput(ctx, 1));
    MR_RETURN_IF_ERROR(Count(ctx, 2, "buffer_size", -1).status());
    return Dataset::FromTextLines(std::move(paths), {.compression = compression, .files = ctx.step().files});
  }
};

class FixedLengthRecordDatasetKernel : public FileDatasetKernel {
 public:
  explicit FixedLengthRecordDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> paths, FileNames(ctx));
    MR_ASSIGN_OR_RETURN(const int64_t header, Count(ctx, 1, "header_bytes", 0));
    MR_ASSIGN_OR_RETURN(const int64_t record, Count(ctx, 2, "record_bytes", 1));
    MR_ASSIGN_OR_RETURN(const int64_t footer, Count(ctx, 3, "footer_bytes", 0));
    MR_RETURN_IF_ERROR(Count(ctx, 4, "buffer_size", -1).status());
    std::string compression;
    if (ctx.num_inputs() > 5) {
      MR_ASSIGN_OR_RETURN(compression, CompressionInput(ctx, 5));
    }
    return Dataset::FromFixedLengthRecords(std::move(paths),
                                           {.record_bytes = record, .header_bytes = header, .footer_bytes = footer},
                                           {.compression = compression, .files = ctx.step().files});
  }
};

class TFRecordDatasetKernel : public FileDatasetKernel {
 public:
  explicit TFRecordDatasetKernel(KernelInit&) {}
  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(std::vector<std::string> paths, FileNames(ctx));
    MR_ASSIGN_OR_RETURN(const std::string compression, CompressionInput(ctx, 1));
    MR_RETURN_IF_ERROR(Count(ctx, 2, "buffer_size", -1).status());
    std::vector<int64_t> offsets;
    if (ctx.num_inputs() > 3) {
      const auto given = ctx.input(3).flat<int64_t>();
      offsets.assign(given.begin(), given.end());
      if (!offsets.empty() && offsets.size() != paths.size()) {
        return InvalidArgument("there are ", paths.size(), " files and ", offsets.size(), " byte_offsets");
      }
    }
    return Dataset::FromTFRecords(std::move(paths), {.compression = compression, .files = ctx.step().files},
                                  std::move(offsets));
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
