// AsString: formats numbers as printf does.
#include <charconv>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// A limit, because the width comes from an untrusted graph.
constexpr int64_t kMaxWidth = 1 << 16;

std::string Formatted(const char* format, auto... values) {
  char buffer[128];
  const int n = std::snprintf(buffer, sizeof(buffer), format, values...);
  if (n < 0) return "";
  if (n < static_cast<int>(sizeof(buffer))) return std::string(buffer, static_cast<size_t>(n));
  std::string text(static_cast<size_t>(n), '\0');
  std::snprintf(text.data(), text.size() + 1, format, values...);
  return text;
}

template <typename T>
std::string TextOf(const T& value, const std::string& format) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return Formatted(format.c_str(), static_cast<double>(value.real()), static_cast<double>(value.imag()));
  } else if constexpr (std::is_integral_v<T>) {
    return Formatted(format.c_str(),
                     static_cast<std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>>(value));
  } else {
    return Formatted(format.c_str(), static_cast<double>(value));
  }
}

// The same as printf without width and fill, but faster.
template <typename T>
std::string PlainTextOf(const T& value, std::chars_format form, int precision, const std::string& format) {
  char buffer[128];
  std::to_chars_result result{buffer, std::errc::value_too_large};
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  } else if constexpr (std::is_convertible_v<T, double> && !std::is_same_v<T, bool>) {
    result = std::to_chars(buffer, buffer + sizeof(buffer), static_cast<double>(value), form, precision);
  }
  return result.ec == std::errc() ? std::string(buffer, result.ptr) : TextOf(value, format);
}

using TextTypes = PlainTypes;

class AsStringKernel : public Kernel {
 public:
  explicit AsStringKernel(KernelInit& init) {
    int64_t precision = -1, width = -1;
    bool scientific = false, shortest = false;
    std::string fill;
    init.Attr("precision", &precision);
    init.Attr("scientific", &scientific);
    init.Attr("shortest", &shortest);
    init.Attr("width", &width);
    init.Attr("fill", &fill);
    const DType type = init.input_type(0);
    is_string_ = type == DType::kString;
    const bool floating = IsFloating(type) || IsComplex(type);
    if (!floating && !is_string_) {
      if (scientific || shortest) {
        init.Fail(InvalidArgument("scientific and shortest format not supported for datatype ", type));
      }
      if (precision >= 0) init.Fail(InvalidArgument("precision not supported for datatype ", type));
    }
    if (fill.size() > 1) {
      init.Fail(InvalidArgument("Fill string must be one or fewer characters, but is \"", fill, "\""));
    }
    if (!fill.empty() && std::string(" +-0#").find(fill[0]) == std::string::npos) {
      init.Fail(InvalidArgument("Fill argument not supported: \"", fill, "\""));
    }
    if (scientific && shortest) init.Fail(InvalidArgument("Cannot select both scientific and shortest notation"));
    if (width > kMaxWidth || precision > kMaxWidth) {
      init.Fail(InvalidArgument("width ", width, " and precision ", precision, " must not exceed ", kMaxWidth));
    }
    if (!is_string_ && !DispatchType(TextTypes(), type, [](auto) {})) FailDType(init, type);
    std::string one = absl::StrCat("%", fill);
    if (width > -1) absl::StrAppend(&one, width);
    if (precision > -1) absl::StrAppend(&one, ".", precision);
    string_width_ = static_cast<size_t>(std::max<int64_t>(width, 0));
    string_precision_ = width > 0 && precision > -1 ? static_cast<size_t>(precision) : std::string::npos;
    pads_right_ = fill == "-";
    plain_ = width < 0 && fill.empty();
    form_ = shortest     ? std::chars_format::general
            : scientific ? std::chars_format::scientific
                         : std::chars_format::fixed;
    precision_ = precision < 0 ? 6 : static_cast<int>(precision);
    if (floating) {
      one += shortest ? "g" : scientific ? "e" : "f";
    } else {
      one += IsUnsigned(type) ? "llu" : "lld";
    }
    format_ = IsComplex(type) ? absl::StrCat("(", one, ",", one, ")") : one;
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    std::string* to = out->data<std::string>();
    if (is_string_) {
      const std::string* from = input.data<std::string>();
      for (int64_t i = 0, n = input.num_elements(); i < n; ++i) to[i] = Padded(from[i]);
      return absl::OkStatus();
    }
    DispatchType(TextTypes(), input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T* from = input.data<T>();
      ctx.ParallelFor(input.num_elements(), 256, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          to[i] = plain_ ? PlainTextOf(from[i], form_, precision_, format_) : TextOf(from[i], format_);
        }
      });
    });
    return absl::OkStatus();
  }

 private:
  static bool IsUnsigned(DType type) {
    return type == DType::kUInt8 || type == DType::kUInt16 || type == DType::kUInt32 || type == DType::kUInt64;
  }

  // Strings may contain any bytes, including zeros, so printf is not used. Without a width they are unchanged.
  std::string Padded(const std::string& text) const {
    std::string padded = text.substr(0, string_precision_);
    if (padded.size() < string_width_) {
      padded.insert(pads_right_ ? padded.size() : 0, string_width_ - padded.size(), ' ');
    }
    return padded;
  }

  bool is_string_ = false;
  size_t string_width_ = 0;
  size_t string_precision_ = std::string::npos;
  bool pads_right_ = false;
  bool plain_ = false;  // neither width nor fill
  std::chars_format form_ = std::chars_format::fixed;
  int precision_ = 6;
  std::string format_;
};

MILLRACE_OP(AsString)
    .Input("input: T")
    .Output("output: string")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, "
        "complex64, complex128, bool, variant, string}")
    .Attr("precision: int = -1")
    .Attr("scientific: bool = false")
    .Attr("shortest: bool = false")
    .Attr("width: int = -1")
    .Attr("fill: string = ''")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Converts numbers to strings.");
MILLRACE_KERNEL(AsString, kCpu, AsStringKernel);

}  // namespace
}  // namespace millrace
