// ImmutableConst: a constant read from a file. FakeParam: a placeholder value that is never used.
#include <cstring>

#include "millrace/base/file.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Read on first use, then cached.
class ImmutableConstKernel : public Kernel {
 public:
  explicit ImmutableConstKernel(KernelInit& init) {
    PartialShape shape;
    init.Attr("shape", &shape);
    init.Attr("memory_region_name", &path_);
    dtype_ = init.output_type(0);
    if (!init.status().ok()) return;
    if (!shape.IsFullyDefined()) {
      init.Fail(InvalidArgument("ImmutableConst needs a shape that is fully defined, got ", shape.ToString()));
      return;
    }
    StatusOr<Shape> whole = Shape::Make(shape.dims());
    if (whole.ok()) {
      shape_ = *std::move(whole);
    } else {
      init.Fail(whole.status());
    }
    if (dtype_ == DType::kString) init.Fail(Unimplemented("ImmutableConst cannot hold strings"));
    if (dtype_ == DType::kResource || dtype_ == DType::kVariant) {
      init.Fail(InvalidArgument("Resource and variant dtypes are invalid for this op."));
    }
  }

  Status Compute(KernelContext& ctx) override {
    MutexLock lock(&mu_);
    if (!value_.IsInitialized()) {
      MR_ASSIGN_OR_RETURN(value_, Read(ctx.step().files));
    }
    ctx.SetOutput(0, value_);
    return absl::OkStatus();
  }

 private:
  StatusOr<Tensor> Read(FileSystem* files) const {
    if (files == nullptr) return Internal("the step has no files");
    MR_ASSIGN_OR_RETURN(const uint64_t size, files->FileSize(path_));
    const auto bytes = static_cast<uint64_t>(shape_.num_elements()) * SizeOf(dtype_);
    if (size < bytes) {
      return Internal("Readonly memory region has wrong length (", size, ") when interpreting as type ", dtype_,
                      ": file ", path_, " should have ", bytes, " bytes");
    }
    MR_ASSIGN_OR_RETURN(Tensor value, Tensor::Make(dtype_, shape_));
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<SequentialFile> file, files->OpenSequential(path_));
    MR_ASSIGN_OR_RETURN(const size_t got, file->Read(bytes, static_cast<char*>(value.raw_data())));
    if (got != bytes) return Internal("file ", path_, " ended after ", got, " of ", bytes, " bytes");
    return value;
  }

  std::string path_;
  DType dtype_ = DType::kInvalid;
  Shape shape_;
  Mutex mu_;
  Tensor value_ ABSL_GUARDED_BY(mu_);
};

// Zeros of the declared shape; unknown dimensions are 0.
class FakeParamKernel : public Kernel {
 public:
  explicit FakeParamKernel(KernelInit& init) {
    PartialShape partial;
    init.Attr("shape", &partial);
    if (!init.status().ok()) return;
    Shape::Dims dims(partial.dims().begin(), partial.dims().end());
    for (int64_t& d : dims) d = std::max<int64_t>(d, 0);
    const StatusOr<Shape> shape = Shape::Make(dims);
    StatusOr<Tensor> value = shape.ok() ? Tensor::Make(init.output_type(0), *shape) : shape.status();
    if (!value.ok()) {
      init.Fail(value.status());
      return;
    }
    value_ = *std::move(value);
    if (IsPlain(value_.dtype()) && value_.TotalBytes() > 0) std::memset(value_.raw_data(), 0, value_.TotalBytes());
  }
  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, value_);
    return absl::OkStatus();
  }

 private:
  Tensor value_;
};

MILLRACE_OP(ImmutableConst)
    .Summary("A constant whose bytes are read from a file.")
    .Output("tensor: dtype")
    .Attr("dtype: type")
    .Attr("shape: shape")
    .Attr("memory_region_name: string")
    .Shape(AttrShape)
    .NotDifferentiable();
MILLRACE_OP(FakeParam)
    .Summary("A placeholder for an unused value, such as an output of a branch that is not taken.")
    .Output("output: dtype")
    .Attr("dtype: type")
    .Attr("shape: shape")
    .Shape(AttrShape)
    .NotDifferentiable();
MILLRACE_KERNEL(ImmutableConst, kCpu, ImmutableConstKernel);
MILLRACE_KERNEL(FakeParam, kCpu, FakeParamKernel);

}  // namespace
}  // namespace millrace
