// DecodeRaw and DecodePaddedRaw: reinterpret bytes as numbers.
#include <algorithm>
#include <cstring>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Reverses the bytes of each word of `size` bytes.
void SwapWords(uint8_t* data, int64_t words, size_t size) {
  if (size < 2) return;
  for (int64_t i = 0; i < words; ++i) std::reverse(data + i * size, data + (i + 1) * size);
}

class RawKernel : public Kernel {
 public:
  explicit RawKernel(KernelInit& init) : dtype_(init.output_type(0)), size_(SizeOf(dtype_)) {
    bool little_endian = true;
    init.Attr("little_endian", &little_endian);
    if (!IsPlain(dtype_) || size_ == 0) FailDType(init, dtype_);
    // The parts of a complex number are words of their own.
    if (!little_endian) word_ = IsComplex(dtype_) ? size_ / 2 : size_;
  }

 protected:
  // Converts from the input's byte order to this machine's, and non-zero bytes to true for bool.
  void Finish(Tensor* out) const {
    auto* data = out->raw<uint8_t>();
    if (word_ > 1) SwapWords(data, static_cast<int64_t>(out->TotalBytes() / word_), word_);
    if (dtype_ == DType::kBool) {
      for (int64_t i = 0, n = out->num_elements(); i < n; ++i) data[i] = data[i] != 0 ? 1 : 0;
    }
  }

  const DType dtype_;
  const size_t size_;
  size_t word_ = 1;
};

class DecodeRawKernel : public RawKernel {
 public:
  using RawKernel::RawKernel;
  Status Compute(KernelContext& ctx) override {
    const auto input = ctx.input(0).flat<std::string>();
    const size_t bytes = input.empty() ? 0 : input[0].size();
    for (size_t i = 1; i < input.size(); ++i) {
      if (input[i].size() != bytes) {
        return InvalidArgument("DecodeRaw requires input strings to all be the same size, but element ", i,
                               " has size ", input[i].size(), " != ", bytes);
      }
    }
    if (bytes % size_ != 0) {
      return InvalidArgument("Input to DecodeRaw has length ", bytes, " that is not a multiple of ", size_,
                             ", the size of ", dtype_);
    }
    Shape shape = ctx.input(0).shape();
    shape.AddDim(static_cast<int64_t>(bytes / size_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    auto* to = out->raw<uint8_t>();
    for (const std::string& text : input) {
      std::memcpy(to, text.data(), bytes);
      to += bytes;
    }
    Finish(out);
    return absl::OkStatus();
  }
};

class DecodePaddedRawKernel : public RawKernel {
 public:
  using RawKernel::RawKernel;
  Status Compute(KernelContext& ctx) override {
    const Tensor& length = ctx.input(1);
    if (length.rank() != 0) {
      return InvalidArgument("fixed_length must be a scalar, got shape ", length.shape().ToString());
    }
    const int64_t row = length.scalar<int32_t>();
    if (row <= 0) return InvalidArgument("fixed_length (", row, ") must be greater than zero.");
    if (row % static_cast<int64_t>(size_) != 0) {
      return InvalidArgument("fixed_length (", row, ") must be a multiple of the size of out_type (", size_, ")");
    }
    Shape::Dims dims(ctx.input(0).shape().dims().begin(), ctx.input(0).shape().dims().end());
    dims.push_back(row / static_cast<int64_t>(size_));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    auto* to = out->raw<uint8_t>();
    for (const std::string& text : ctx.input(0).flat<std::string>()) {
      const size_t n = std::min(text.size(), static_cast<size_t>(row));
      std::memcpy(to, text.data(), n);
      std::memset(to + n, 0, static_cast<size_t>(row) - n);
      to += row;
    }
    Finish(out);
    return absl::OkStatus();
  }
};

Status DecodeRawShape(ShapeContext& c) {
  PartialShape out = c.input(0);
  if (out.known_rank()) out.AddDim(PartialShape::kUnknown);
  c.set_output(0, out);
  return absl::OkStatus();
}

MILLRACE_OP(DecodeRaw)
    .Input("bytes: string")
    .Output("output: out_type")
    .Attr(
        "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool, "
        "bfloat16}")
    .Attr("little_endian: bool = true")
    .Shape(DecodeRawShape)
    .NotDifferentiable()
    .Summary("Reinterprets the bytes of strings of equal length as numbers.");
MILLRACE_OP(DecodePaddedRaw)
    .Input("input_bytes: string")
    .Input("fixed_length: int32")
    .Output("output: out_type")
    .Attr("out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, bfloat16}")
    .Attr("little_endian: bool = true")
    .Shape(DecodeRawShape)
    .NotDifferentiable()
    .Summary("Reinterprets the bytes of strings, truncated or zero-padded to a fixed length, as numbers.");
MILLRACE_KERNEL(DecodeRaw, kCpu, DecodeRawKernel);
MILLRACE_KERNEL(DecodePaddedRaw, kCpu, DecodePaddedRawKernel);

}  // namespace
}  // namespace millrace
