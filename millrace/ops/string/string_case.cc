// StringLower, StringUpper and StringStrip.
#include <unicode/ucasemap.h>

#include "absl/strings/ascii.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Unicode's full case mapping, for no language in particular. Safe to share between threads.
const UCaseMap* CaseMap() {
  static const UCaseMap* const map = [] {
    UErrorCode error = U_ZERO_ERROR;
    return ucasemap_open("", 0, &error);
  }();
  return map;
}

using Mapping = decltype(&ucasemap_utf8ToLower);

std::string MapUtf8(Mapping mapping, const std::string& text) {
  std::string mapped(text.size() + 16, '\0');
  // A second time with the room that the first asked for, when it did not fit.
  for (int attempt = 0; attempt < 2; ++attempt) {
    UErrorCode error = U_ZERO_ERROR;
    const int32_t n = mapping(CaseMap(), mapped.data(), static_cast<int32_t>(mapped.size()), text.data(),
                              static_cast<int32_t>(text.size()), &error);
    mapped.resize(static_cast<size_t>(std::max(n, 0)));
    if (error != U_BUFFER_OVERFLOW_ERROR) break;
  }
  return mapped;
}

template <bool kUpper>
class StringCaseKernel : public Kernel {
 public:
  explicit StringCaseKernel(KernelInit& init) {
    std::string encoding;
    init.Attr("encoding", &encoding);
    if (!encoding.empty() && encoding != "utf-8") {
      init.Fail(InvalidArgument("only utf-8 or '' (no encoding) is supported, received ", encoding));
    }
    utf8_ = !encoding.empty();
  }
  Status Compute(KernelContext& ctx) override {
    if (!utf8_) {
      return MapStrings(ctx, [](const std::string& s) { return kUpper ? absl::AsciiStrToUpper(s) : absl::AsciiStrToLower(s); });
    }
    for (const std::string& text : ctx.input(0).flat<std::string>()) {
      // One letter may become three, each of which is counted in 32 bits.
      if (text.size() > (size_t{1} << 29)) return InvalidArgument("a string of ", text.size(), " bytes is too long");
    }
    return MapStrings(ctx, [](const std::string& s) { return MapUtf8(kUpper ? ucasemap_utf8ToUpper : ucasemap_utf8ToLower, s); });
  }

 private:
  bool utf8_ = false;
};

class StringStripKernel : public Kernel {
 public:
  explicit StringStripKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    return MapStrings(ctx, [](const std::string& s) { return std::string(absl::StripAsciiWhitespace(s)); });
  }
};

MILLRACE_OP(StringLower)
    .Input("input: string").Output("output: string").Attr("encoding: string = ''")
    .Shape(UnchangedShape).NotDifferentiable()
    .Summary("Upper-case letters as lower-case ones: ASCII only, or all of UTF-8.");
MILLRACE_OP(StringUpper)
    .Input("input: string").Output("output: string").Attr("encoding: string = ''")
    .Shape(UnchangedShape).NotDifferentiable()
    .Summary("Lower-case letters as upper-case ones: ASCII only, or all of UTF-8.");
MILLRACE_OP(StringStrip)
    .Input("input: string").Output("output: string")
    .Shape(UnchangedShape).NotDifferentiable()
    .Summary("Strings without white space at their ends.");
MILLRACE_KERNEL(StringLower, kCpu, StringCaseKernel<false>);
MILLRACE_KERNEL(StringUpper, kCpu, StringCaseKernel<true>);
MILLRACE_KERNEL(StringStrip, kCpu, StringStripKernel);

}  // namespace
}  // namespace millrace
