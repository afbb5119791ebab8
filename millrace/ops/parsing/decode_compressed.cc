// DecodeCompressed: decompresses zlib or gzip strings.
#include <zlib.h>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// A limit against decompression bombs: input can expand a thousandfold.
constexpr size_t kMaxUnpacked = size_t{1} << 31;

// Truncated input gives what can be decompressed. Several gzip members may be concatenated.
Status Unpack(absl::string_view packed, bool gzip, std::string* out) {
  z_stream stream = {};
  if (inflateInit2(&stream, gzip ? MAX_WBITS + 16 : MAX_WBITS) != Z_OK) {
    return ResourceExhausted("no memory to unpack with");
  }
  Status status;
  std::string block(size_t{1} << 16, '\0');
  while (status.ok()) {
    if (stream.avail_in == 0) {
      if (packed.empty()) break;
      const size_t n = std::min<size_t>(packed.size(), 1 << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream.avail_in = static_cast<uInt>(n);
      packed.remove_prefix(n);
    }
    int result = Z_OK;
    do {
      stream.next_out = reinterpret_cast<Bytef*>(block.data());
      stream.avail_out = static_cast<uInt>(block.size());
      result = inflate(&stream, Z_NO_FLUSH);
      out->append(block.data(), block.size() - stream.avail_out);
    } while (result == Z_OK && stream.avail_out == 0 && out->size() <= kMaxUnpacked);
    if (out->size() > kMaxUnpacked) {
      status = ResourceExhausted("the unpacked string has more than ", kMaxUnpacked, " bytes");
    } else if (result == Z_STREAM_END) {
      if (!gzip) break;
      inflateReset(&stream);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      status = DataLoss("inflate() failed with error ", result, ": ", stream.msg == nullptr ? "" : stream.msg);
    }
  }
  inflateEnd(&stream);
  return status;
}

class DecodeCompressedKernel : public Kernel {
 public:
  explicit DecodeCompressedKernel(KernelInit& init) {
    init.Attr("compression_type", &type_);
    if (!type_.empty() && type_ != "ZLIB" && type_ != "GZIP") {
      init.Fail(InvalidArgument("Only ZLIB, GZIP or NONE are supported compressions, not ", type_));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (type_.empty()) {
      ctx.SetOutput(0, input);
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    for (int64_t i = 0, n = input.num_elements(); i < n; ++i) {
      const Status status = Unpack(input.data<std::string>()[i], type_ == "GZIP", &out->data<std::string>()[i]);
      if (!status.ok()) return WithSuffix(status, absl::StrCat(" (element ", i, ")"));
    }
    return absl::OkStatus();
  }
  bool is_expensive() const override { return !type_.empty(); }

 private:
  std::string type_;
};

MILLRACE_OP(DecodeCompressed)
    .Input("bytes: string")
    .Output("output: string")
    .Attr("compression_type: string = ''")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Decompresses ZLIB or GZIP strings.");
MILLRACE_KERNEL(DecodeCompressed, kCpu, DecodeCompressedKernel);

}  // namespace
}  // namespace millrace
