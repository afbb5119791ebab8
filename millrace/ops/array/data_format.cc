// DataFormatDimMap and DataFormatVecPermute: convert dimension indices and per-dimension vectors between image layouts.
#include <algorithm>
#include <string>
#include <vector>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"

namespace millrace {
namespace {

// Whether each letter occurs once, and in both.
bool ArePermutations(std::string a, std::string b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b && std::adjacent_find(a.begin(), a.end()) == a.end();
}

// Reads both formats and checks that they are permutations of 4 or 5 letters.
void ReadFormats(KernelInit& init, std::string* from, std::string* to) {
  init.Attr("src_format", from);
  init.Attr("dst_format", to);
  if (from->size() != 4 && from->size() != 5) {
    init.Fail(InvalidArgument("Source format must be of length 4 or 5, received src_format = ", *from));
  } else if (to->size() != 4 && to->size() != 5) {
    init.Fail(InvalidArgument("Destination format must be of length 4 or 5, received dst_format = ", *to));
  } else if (from->size() != to->size()) {
    init.Fail(InvalidArgument("Source and destination formats must have the same length, not ", *from, " and ", *to));
  } else if (!ArePermutations(*from, *to)) {
    init.Fail(InvalidArgument("Destination and source format must determine a permutation, got ", *from, " and ", *to));
  }
}

class DataFormatDimMapKernel : public Kernel {
 public:
  explicit DataFormatDimMapKernel(KernelInit& init) {
    std::string from, to;
    ReadFormats(init, &from, &to);
    if (!init.status().ok()) return;
    for (char letter : from) places_.push_back(static_cast<int64_t>(to.find(letter)));
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
      if (static_cast<int64_t>(from.size()) != rows) {
        return InvalidArgument("Format specifier must contain ",
                               rows == 2 ? "H and W for 2D case" : "D, H and W for 3D case", ", got ", from_, " and ",
                               to_);
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    const int64_t width = x.rank() == 2 ? 2 : 1;
    DispatchType(IndexTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < rows; ++i) {
        const auto at = static_cast<int64_t>(from.find(to[i]));
        std::copy_n(x.data<T>() + at * width, width, y->data<T>() + i * width);
      }
    });
    return absl::OkStatus();
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
