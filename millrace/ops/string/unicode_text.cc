#include "millrace/ops/string/unicode_text.h"

#include <unicode/ucnv.h>
#include <unicode/ucnv_cb.h>

#include <limits>
#include <memory>

namespace millrace {
namespace {

struct CloseConverter {
  void operator()(UConverter* converter) const { ucnv_close(converter); }
};
using ConverterPtr = std::unique_ptr<UConverter, CloseConverter>;

// Notes that a sequence is malformed, and gives U+FFFD for it.
void NoteMalformed(const void* context, UConverterToUnicodeArgs* args, const char*, int32_t,
                   UConverterCallbackReason why, UErrorCode* code) {
  if (why > UCNV_IRREGULAR) return;  // the converter is reset or closed
  *const_cast<bool*>(static_cast<const bool*>(context)) = true;
  *code = U_ZERO_ERROR;
  static constexpr UChar kReplacement = 0xFFFD;
  ucnv_cbToUWriteUChars(args, &kReplacement, 1, 0, code);
}

StatusOr<ConverterPtr> OpenConverter(const std::string& encoding) {
  UErrorCode code = U_ZERO_ERROR;
  ConverterPtr converter(ucnv_open(encoding.c_str(), &code));
  if (U_FAILURE(code)) return InvalidArgument("Could not create converter for input encoding: ", encoding);
  return converter;
}

}  // namespace

MalformedPolicy::MalformedPolicy(KernelInit& init) {
  std::string errors;
  int64_t character = replacement;
  init.Attr("errors", &errors);
  init.Attr("replacement_char", &character);
  replace_control = init.node().AttrOr<bool>("replace_control_characters", false);
  strict = errors == "strict";
  ignore = errors == "ignore";
  if (character < 0 || character > 0x10FFFF) {
    init.Fail(InvalidArgument("replacement_char out of unicode codepoint range: ", character));
  } else {
    replacement = static_cast<int32_t>(character);
  }
}

Status CheckInputEncoding(const std::string& encoding) { return OpenConverter(encoding).status(); }

Status ForEachCodePoint(absl::string_view text, const std::string& encoding,
                        absl::FunctionRef<void(int32_t, int64_t, bool)> each) {
  // ICU uses 32-bit lengths.
  if (text.size() > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("a string of ", text.size(), " bytes is too long");
  }
  MR_ASSIGN_OR_RETURN(const ConverterPtr converter, OpenConverter(encoding));
  bool malformed = false;
  UErrorCode code = U_ZERO_ERROR;
  ucnv_setToUCallBack(converter.get(), NoteMalformed, &malformed, nullptr, nullptr, &code);
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (at < end) {
    const char* const begin = at;
    malformed = false;
    const UChar32 c = ucnv_getNextUChar(converter.get(), &at, end, &code);
    if (code == U_INDEX_OUTOFBOUNDS_ERROR) break;  // the rest is no character, such as a byte order mark
    if (U_FAILURE(code)) return InvalidArgument("Could not decode a string from ", encoding, ": ", u_errorName(code));
    each(c, at - begin, malformed);
  }
  return absl::OkStatus();
}

OutputEncoding OutputEncodingAttr(KernelInit& init) {
  std::string name;
  init.Attr("output_encoding", &name);
  return name == "UTF-8" ? OutputEncoding::kUtf8
                         : (name == "UTF-16-BE" ? OutputEncoding::kUtf16Be : OutputEncoding::kUtf32Be);
}

void AppendCodePoint(int32_t c, OutputEncoding encoding, std::string* text) {
  const auto put = [&](int32_t byte) { text->push_back(static_cast<char>(byte & 0xFF)); };
  const auto put16 = [&](int32_t unit) {
    put(unit >> 8);
    put(unit);
  };
  switch (encoding) {
    case OutputEncoding::kUtf32Be:
      put16(c >> 16);
      put16(c);
      return;
    case OutputEncoding::kUtf16Be:
      if (c < 0x10000) return put16(c);
      put16(0xD7C0 + (c >> 10));
      put16(0xDC00 + (c & 0x3FF));
      return;
    case OutputEncoding::kUtf8:
      break;
  }
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      put(0xE0 | (c >> 12));
    } else {
      put(0xF0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3F));
    }
    put(0x80 | ((c >> 6) & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

}  // namespace millrace
