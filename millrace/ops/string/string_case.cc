// StringLower, StringUpper and StringStrip.
#include <unicode/locid.h>
#include <unicode/unistr.h>

#include "absl/strings/ascii.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Unicode's full case mapping in the root locale. Invalid UTF-8 becomes U+FFFD.
std::string MapUtf8(const std::string& text, bool upper) {
  icu::UnicodeString characters =
      icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  if (upper) {
    characters.toUpper(icu::Locale::getRoot());
  } else {
    characters.toLower(icu::Locale::getRoot());
  }
  std::string mapped;
  characters.toUTF8String(mapped);
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
      return MapStrings(
          ctx, [](const std::string& s) { return kUpper ? absl::AsciiStrToUpper(s) : absl::AsciiStrToLower(s); });
    }
    for (const std::string& text : ctx.input(0).flat<std::string>()) {
      // One letter may become three, and ICU uses 32-bit lengths.
      if (text.size() > (size_t{1} << 29)) return InvalidArgument("a string of ", text.size(), " bytes is too long");
    }
    return MapStrings(ctx, [](const std::string& s) { return MapUtf8(s, kUpper); });
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
    .Input("input: string")
    .Output("output: string")
    .Attr("encoding: string = ''")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Converts to lower case: ASCII only, or UTF-8.");
MILLRACE_OP(StringUpper)
    .Input("input: string")
    .Output("output: string")
    .Attr("encoding: string = ''")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Converts to upper case: ASCII only, or UTF-8.");
MILLRACE_OP(StringStrip)
    .Input("input: string")
    .Output("output: string")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Strips leading and trailing white space.");
MILLRACE_KERNEL(StringLower, kCpu, StringCaseKernel<false>);
MILLRACE_KERNEL(StringUpper, kCpu, StringCaseKernel<true>);
MILLRACE_KERNEL(StringStrip, kCpu, StringStripKernel);

}  // namespace
}  // namespace millrace
