// DataFormatDimMap and DataFormatVecPermute: convert dimension indices and per-dimension vectors between image layouts.
#include <array>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

// Reads both formats and checks that they have the same length, 4 or 5.
void ReadFormats(KernelInit& init, std::string* from, std::string* to) {
  init.Attr("src_format", from);
  init.Attr("dst_format", to);
  if (from->size() != 4 && from->size() != 5) {
    init.Fail(InvalidArgument("Source format must be of length 4 or 5, received src_format = ", *from));
  } else if (to->size() != 4 && to->size() != 5) {
    init.Fail(InvalidArgument("Destination format must be of length 4 or 5, received dst_format = ", *to));
  } else if (from->size() != to->size()) {
    init.Fail(InvalidArgument("Source and destination formats must have the same length, not ", *from, " and ", *to));
  }
}

class DataFormatDimMapKernel : public Kernel {
 public:
  explicit DataFormatDimMapKernel(KernelInit& init) {
    std::string from, to;
    ReadFormats(init, &from, &to);
    if (!init.status().ok()) return;
    for (char letter : from) {
      const size_t at = to.find(letter);
      if (at == std::string::npos) {
        init.Fail(InvalidArgument("Destination format ", to, " is not a permutation of ", from));
        return;
      }
      places_.push_back(static_cast<int64_t>(at));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    const auto n = static_cast<int64_t>(places_.size());
    DispatchType(IndexTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      // Dimensions wrap around, as in TensorFlow.
      for (int64_t i = 0; i < x.num_elements(); ++i)
        y->data<T>()[i] = static_cast<T>(places_[(x.data<T>()[i] % n + n) % n]);
    });
    return absl::OkStatus();
  }

 private:
  std::vector<int64_t> places_;
};

class DataFormatVecPermuteKernel : public Kernel {
 public:
  explicit DataFormatVecPermuteKernel(KernelInit& init) { ReadFormats(init, &from_, &to_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (x.rank() != 1 && x.rank() != 2) {
      return InvalidArgument("input must be a vector or 2D tensor, but got shape ", x.shape().ToString());
    }
    const auto full = static_cast<int64_t>(from_.size());
    const int64_t rows = x.dim(0);
    if (rows != full && rows != full - 2) {
      return InvalidArgument(
          x.rank() == 1 ? "1D input must be of size " : "First dimension of 2D input must be of size ", full - 2,
          " or ", full, ", but got shape ", x.shape().ToString());
    }
    if (x.rank() == 2 && x.dim(1) != 2) {
      return InvalidArgument("Second dimension of 2D input must be of size 2, but got shape ", x.shape().ToString());
    }
    // A shorter vector omits batch and channel.
    std::string from = from_, to = to_;
    if (rows != full) {
      for (std::string* format : {&from, &to}) {
        std::string spatial;
        for (char letter : *format) {
          if (letter != 'N' && letter != 'C') spatial += letter;
        }
        *format = spatial;
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    const int64_t width = x.rank() == 2 ? 2 : 1;
    Status status;
    DispatchType(IndexTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < rows; ++i) {
        const size_t at = i < static_cast<int64_t>(to.size()) ? from.find(to[i]) : std::string::npos;
        if (at == std::string::npos || static_cast<int64_t>(at) >= rows) {
          status = InvalidArgument("Destination format ", to_, " is not a permutation of ", from_);
          return;
        }
        std::copy_n(x.data<T>() + static_cast<int64_t>(at) * width, width, y->data<T>() + i * width);
      }
    });
    return status;
  }

 private:
  std::string from_, to_;
};

MILLRACE_OP(DataFormatDimMap)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {int32, int64} = DT_INT32")
    .Attr("src_format: string = 'NHWC'")
    .Attr("dst_format: string = 'NCHW'")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Maps dimension indices of one data format to those of another.");
MILLRACE_OP(DataFormatVecPermute)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: {int32, int64} = DT_INT32")
    .Attr("src_format: string = 'NHWC'")
    .Attr("dst_format: string = 'NCHW'")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Permutes a per-dimension vector to the order of another data format.");

MILLRACE_KERNEL(DataFormatDimMap, kCpu, DataFormatDimMapKernel);
MILLRACE_KERNEL(DataFormatVecPermute, kCpu, DataFormatVecPermuteKernel);

}  // namespace
}  // namespace millrace
