// EncodeBase64 and DecodeBase64, with the URL-safe alphabet.
#include <array>

#include "absl/strings/escaping.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr absl::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

constexpr std::array<int8_t, 256> MakeDigits() {
  std::array<int8_t, 256> digits{};
  for (int8_t& digit : digits) digit = -1;
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  return digits;
}
constexpr std::array<int8_t, 256> kDigits = MakeDigits();

// Padding is optional, but if present it must complete the last group of four. Unused bits of the last digit are
// ignored.
Status Decode(absl::string_view text, std::string* out) {
  if (text.size() % 4 == 1) return InvalidArgument("Base64 string length cannot be 1 modulo 4.");
  if (text.size() % 4 == 0) {
    for (int i = 0; i < 2 && !text.empty() && text.back() == '='; ++i) text.remove_suffix(1);
  }
  out->reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int8_t digit = kDigits[static_cast<unsigned char>(c)];
    if (digit < 0) return InvalidArgument("Invalid character found in base64.");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out->push_back(static_cast<char>(bits >> count & 0xff));
    }
  }
  return absl::OkStatus();
}

class EncodeBase64Kernel : public Kernel {
 public:
  explicit EncodeBase64Kernel(KernelInit& init) { init.Attr("pad", &pad_); }
  Status Compute(KernelContext& ctx) override {
    return MapStrings(ctx, [this](const std::string& from) {
      std::string text = absl::WebSafeBase64Escape(from);
      if (pad_) text.append((4 - text.size() % 4) % 4, '=');
      return text;
    });
  }

 private:
  bool pad_ = false;
};

class DecodeBase64Kernel : public Kernel {
 public:
  explicit DecodeBase64Kernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    for (int64_t i = 0, n = input.num_elements(); i < n; ++i) {
      const Status status = Decode(input.data<std::string>()[i], &out->data<std::string>()[i]);
      if (!status.ok()) return WithSuffix(status, absl::StrCat(" (element ", i, ")"));
    }
    return absl::OkStatus();
  }
};

MILLRACE_OP(EncodeBase64)
    .Input("input: string")
    .Output("output: string")
    .Attr("pad: bool = false")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Encodes bytes in web-safe Base64.");
MILLRACE_OP(DecodeBase64)
    .Input("input: string")
    .Output("output: string")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Decodes web-safe Base64.");
MILLRACE_KERNEL(EncodeBase64, kCpu, EncodeBase64Kernel);
MILLRACE_KERNEL(DecodeBase64, kCpu, DecodeBase64Kernel);

}  // namespace
}  // namespace millrace
