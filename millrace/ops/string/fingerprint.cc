// Fingerprint: a 64-bit hash of each row of a tensor.
#include <cstring>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/hashes.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little, "fingerprints are stored with the lowest byte first");

// A row of one string is hashed directly; a row of several by the hashes of its strings.
uint64_t RowOfStrings(const std::string* row, int64_t n) {
  if (n == 1) return FarmFingerprint64(row[0]);
  std::vector<uint64_t> hashes(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) hashes[i] = FarmFingerprint64(row[i]);
  return FarmFingerprint64({reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t)});
}

class FingerprintKernel : public Kernel {
 public:
  explicit FingerprintKernel(KernelInit& init) {
    const DType type = init.input_type(0);
    if (!IsPlain(type) && type != DType::kString) FailDType(init, type);
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& data = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const std::string* method, ScalarString(ctx, 1, "`method`"));
    if (*method != "farmhash64") return InvalidArgument("Unsupported fingerprint method: ", *method);
    if (data.rank() < 1) return InvalidArgument("`data` should have at least one dimension, but is a scalar");
    const int64_t rows = data.dim(0), row = data.shape().Product(1, data.rank());
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({rows, 8})));
    uint8_t* to = out->data<uint8_t>();
    const size_t row_bytes = static_cast<size_t>(row) * SizeOf(data.dtype());
    for (int64_t i = 0; i < rows; ++i) {
      const uint64_t hash =
          data.dtype() == DType::kString
              ? RowOfStrings(data.data<std::string>() + i * row, row)
              : FarmFingerprint64({data.raw<const char>() + i * static_cast<int64_t>(row_bytes), row_bytes});
      std::memcpy(to + 8 * i, &hash, 8);
    }
    return absl::OkStatus();
  }
};

Status FingerprintShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape data, c.WithRankAtLeast(0, 1));
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, PartialShape({data.known_rank() ? data.dim(0) : PartialShape::kUnknown, 8}));
  return absl::OkStatus();
}

MILLRACE_OP(Fingerprint)
    .Input("data: T")
    .Input("method: string")
    .Output("fingerprint: uint8")
    .Attr("T: type")
    .Shape(FingerprintShape)
    .NotDifferentiable()
    .Summary("A 64-bit fingerprint of each row.");
MILLRACE_KERNEL(Fingerprint, kCpu, FingerprintKernel);

}  // namespace
}  // namespace millrace
