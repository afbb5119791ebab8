// ReadFile, WriteFile and MatchingFiles.
#include <algorithm>

#include "millrace/base/glob.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/io/file_inputs.h"
#include "millrace/runtime/file_kernel.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class ReadFileKernel : public FileKernel {
 public:
  explicit ReadFileKernel(KernelInit&) {}

  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    MR_ASSIGN_OR_RETURN(const std::string path, PathInput(ctx, 0, "filename"));
    const StatusOr<bool> is_directory = files->IsDirectory(path);
    if (is_directory.ok() && *is_directory) return FailedPrecondition(path, " is a directory");
    MR_ASSIGN_OR_RETURN(std::string content, ReadWholeFile(files, path));
    ctx.SetOutput(0, Tensor::Scalar(std::move(content)));
    return absl::OkStatus();
  }
};

class WriteFileKernel : public FileKernel {
 public:
  explicit WriteFileKernel(KernelInit&) {}

  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    MR_ASSIGN_OR_RETURN(const std::string path, PathInput(ctx, 0, "filename"));
    const Tensor& contents = ctx.input(1);
    if (contents.rank() != 0) {
      return InvalidArgument("Contents tensor must be scalar, but had shape: ", contents.shape().ToString());
    }
    const StatusOr<bool> is_directory = files->IsDirectory(path);
    if (is_directory.ok() && *is_directory) return FailedPrecondition(path, " is a directory");
    const std::string directory = DirectoryOf(path);
    if (!files->Exists(directory).ok()) {
      if (const Status made = files->MakeDirectories(directory); !made.ok()) {
        return absl::IsAlreadyExists(made) ? FailedPrecondition(made.message()) : made;
      }
    }
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, files->OpenWritable(path));
    MR_RETURN_IF_ERROR(file->Append(contents.scalar<std::string>()));
    return file->Close();
  }
};

class MatchingFilesKernel : public FileKernel {
 public:
  explicit MatchingFilesKernel(KernelInit&) {}

  Status ComputeFiles(KernelContext& ctx) const override {
    MR_ASSIGN_OR_RETURN(FileSystem* const files, Files(ctx));
    const Tensor& patterns = ctx.input(0);
    if (patterns.rank() > 1) {
      return InvalidArgument("Input patterns tensor must be scalar or vector, but had shape: ",
                             patterns.shape().ToString());
    }
    std::vector<std::string> all;
    for (const std::string& pattern : patterns.flat<std::string>()) {
      MR_ASSIGN_OR_RETURN(const std::string path, LocalPath(pattern));
      MR_ASSIGN_OR_RETURN(std::vector<std::string> found, Glob(files, path));
      // Keep the scheme of the pattern in the results.
      const std::string scheme = pattern.substr(0, pattern.size() - path.size());
      for (std::string& name : found) all.push_back(scheme + name);
    }
    std::sort(all.begin(), all.end());
    ctx.SetOutput(0, Tensor::FromVector(all));
    return absl::OkStatus();
  }
};

Status ReadFileShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(CheckRanks(c, {0}));
  c.set_output(0, PartialShape::Scalar());
  return absl::OkStatus();
}
Status WriteFileShape(ShapeContext& c) { return CheckRanks(c, {0, 0}); }
Status MatchingFilesShape(ShapeContext& c) {
  if (c.input(0).rank() > 1) {
    return InvalidArgument("patterns must be a scalar or a vector, got ", c.input(0).ToString());
  }
  c.set_output(0, PartialShape::UnknownOfRank(1));
  return absl::OkStatus();
}

MILLRACE_OP(ReadFile)
    .Input("filename: string")
    .Output("contents: string")
    .Shape(ReadFileShape)
    .NotDifferentiable()
    .Summary("The content of a file.");

MILLRACE_OP(WriteFile)
    .Input("filename: string")
    .Input("contents: string")
    .Stateful()
    .Shape(WriteFileShape)
    .NotDifferentiable()
    .Summary("Writes a file, replacing an existing one; creates missing directories.");

MILLRACE_OP(MatchingFiles)
    .Input("pattern: string")
    .Output("filenames: string")
    .Shape(MatchingFilesShape)
    .NotDifferentiable()
    .Summary("The files that match a pattern, or one of several, sorted.");

MILLRACE_KERNEL(ReadFile, kCpu, ReadFileKernel);
MILLRACE_KERNEL(WriteFile, kCpu, WriteFileKernel);
MILLRACE_KERNEL(MatchingFiles, kCpu, MatchingFilesKernel);

}  // namespace
}  // namespace millrace
