// UnicodeDecode, UnicodeDecodeWithOffsets, UnicodeEncode, UnicodeTranscode and UnicodeScript.
#include <unicode/uscript.h>

#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/string/unicode_text.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

constexpr char kMalformedText[] = "Invalid formatting on input string";

// The characters of `text` after the policy: calls each(code point, offset of its first byte).
Status DecodeText(const std::string& text, const std::string& encoding, const MalformedPolicy& policy,
                  absl::FunctionRef<void(int32_t, int64_t)> each) {
  int64_t offset = 0;
  bool any_malformed = false;
  MR_RETURN_IF_ERROR(ForEachCodePoint(text, encoding, [&](int32_t c, int64_t bytes, bool malformed) {
    const int64_t begin = offset;
    offset += bytes;
    const bool is_control = policy.replace_control && c <= 0x1F;
    any_malformed |= malformed;
    if (!malformed && !is_control) {
      each(c, begin);
    } else if (!policy.ignore) {
      each(policy.replacement, begin);
    }
  }));
  if (any_malformed && policy.strict) return InvalidArgument(kMalformedText);
  return absl::OkStatus();
}

class UnicodeDecodeKernel : public Kernel {
 public:
  explicit UnicodeDecodeKernel(KernelInit& init) : policy_(init) {
    init.Attr("input_encoding", &encoding_);
    if (Status status = CheckInputEncoding(encoding_); !status.ok()) init.Fail(status);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const bool with_offsets = ctx.num_outputs() == 3;
    const int64_t rows = input.num_elements();
    MR_ASSIGN_OR_RETURN(Tensor * splits, ctx.AllocateOutput(0, Shape({rows + 1})));
    std::vector<int32_t> characters;
    std::vector<int64_t> offsets;
    MR_RETURN_IF_ERROR(SetSplit(splits, 0, 0));
    for (int64_t row = 0; row < rows; ++row) {
      MR_RETURN_IF_ERROR(DecodeText(input.data<std::string>()[row], encoding_, policy_, [&](int32_t c, int64_t offset) {
        characters.push_back(c);
        if (with_offsets) offsets.push_back(offset);
      }));
      MR_RETURN_IF_ERROR(SetSplit(splits, row + 1, static_cast<int64_t>(characters.size())));
    }
    const Shape shape({static_cast<int64_t>(characters.size())});
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, shape));
    std::copy(characters.begin(), characters.end(), values->data<int32_t>());
    if (!with_offsets) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor * starts, ctx.AllocateOutput(2, shape));
    std::copy(offsets.begin(), offsets.end(), starts->data<int64_t>());
    return absl::OkStatus();
  }

 private:
  static Status SetSplit(Tensor* splits, int64_t i, int64_t value) {
    if (splits->dtype() == DType::kInt64) {
      splits->data<int64_t>()[i] = value;
      return absl::OkStatus();
    }
    if (value > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("row_splits of type int32 cannot hold ", value, " characters");
    }
    splits->data<int32_t>()[i] = static_cast<int32_t>(value);
    return absl::OkStatus();
  }

  const MalformedPolicy policy_;
  std::string encoding_;
};

class UnicodeTranscodeKernel : public Kernel {
 public:
  explicit UnicodeTranscodeKernel(KernelInit& init) : policy_(init), output_(OutputEncodingAttr(init)) {
    init.Attr("input_encoding", &encoding_);
    if (Status status = CheckInputEncoding(encoding_); !status.ok()) init.Fail(status);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      std::string text;
      MR_RETURN_IF_ERROR(DecodeText(input.data<std::string>()[i], encoding_, policy_, [&](int32_t c, int64_t) {
        AppendCodePoint(IsEncodable(c) ? c : 0xFFFD, output_, &text);
      }));
      out->data<std::string>()[i] = std::move(text);
    }
    return absl::OkStatus();
  }

 private:
  const MalformedPolicy policy_;
  const OutputEncoding output_;
  std::string encoding_;
};

class UnicodeEncodeKernel : public Kernel {
 public:
  explicit UnicodeEncodeKernel(KernelInit& init) : policy_(init), output_(OutputEncodingAttr(init)) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &characters = ctx.input(0), &splits = ctx.input(1);
    if (characters.rank() != 1 || splits.rank() != 1) {
      return InvalidArgument("input_values and input_splits must be vectors, but have shapes ",
                             characters.shape().ToString(), " and ", splits.shape().ToString());
    }
    if (splits.num_elements() == 0) return InvalidArgument("input_splits must have at least one value");
    if (IntAt(splits, 0) != 0) return InvalidArgument("First value in input_splits must be zero.");
    const int64_t rows = splits.num_elements() - 1;
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({rows})));
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t begin = IntAt(splits, row), end = IntAt(splits, row + 1);
      if (end < begin) return InvalidArgument("Values in input_splits must be equal or in ascending order.");
      if (end > characters.num_elements()) {
        return InvalidArgument("Values in input_splits must be less than or equal to input_tensor length.");
      }
      std::string text;
      for (int64_t i = begin; i < end; ++i) {
        const int32_t c = characters.data<int32_t>()[i];
        if (IsEncodable(c)) {
          AppendCodePoint(c, output_, &text);
        } else if (policy_.strict) {
          return InvalidArgument("Code point is out of range for Unicode, or a noncharacter: ", c);
        } else if (!policy_.ignore) {
          AppendCodePoint(IsEncodable(policy_.replacement) ? policy_.replacement : 0xFFFD, output_, &text);
        }
      }
      out->data<std::string>()[row] = std::move(text);
    }
    return absl::OkStatus();
  }

 private:
  const MalformedPolicy policy_;
  const OutputEncoding output_;
};

class UnicodeScriptKernel : public Kernel {
 public:
  explicit UnicodeScriptKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    for (int64_t i = 0; i < input.num_elements(); ++i) {
      UErrorCode code = U_ZERO_ERROR;
      const UScriptCode script = uscript_getScript(input.data<int32_t>()[i], &code);
      out->data<int32_t>()[i] = U_SUCCESS(code) ? static_cast<int32_t>(script) : USCRIPT_INVALID_CODE;
    }
    return absl::OkStatus();
  }
};

Status UnicodeDecodeShape(ShapeContext& c) {
  const int64_t strings = c.input(0).num_elements();
  c.set_output(0, PartialShape({strings < 0 ? -1 : strings + 1}));
  for (int i = 1; i < c.num_outputs(); ++i) c.set_output(i, PartialShape({-1}));
  return absl::OkStatus();
}

Status UnicodeEncodeShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MR_ASSIGN_OR_RETURN(const PartialShape splits, c.WithRank(1, 1));
  c.set_output(0, PartialShape({splits.dim(0) > 0 ? splits.dim(0) - 1 : -1}));
  return absl::OkStatus();
}

MILLRACE_OP(UnicodeDecode)
    .Input("input: string")
    .Output("row_splits: Tsplits")
    .Output("char_values: int32")
    .Attr("input_encoding: string")
    .Attr("errors: {'strict', 'replace', 'ignore'} = 'replace'")
    .Attr("replacement_char: int = 65533")
    .Attr("replace_control_characters: bool = false")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Shape(UnicodeDecodeShape)
    .NotDifferentiable()
    .Summary("The Unicode code points of each string, as a ragged tensor.");
MILLRACE_OP(UnicodeDecodeWithOffsets)
    .Input("input: string")
    .Output("row_splits: Tsplits")
    .Output("char_values: int32")
    .Output("char_to_byte_starts: int64")
    .Attr("input_encoding: string")
    .Attr("errors: {'strict', 'replace', 'ignore'} = 'replace'")
    .Attr("replacement_char: int = 65533")
    .Attr("replace_control_characters: bool = false")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Shape(UnicodeDecodeShape)
    .NotDifferentiable()
    .Summary("The Unicode code points of each string, and where in it each begins.");
MILLRACE_OP(UnicodeEncode)
    .Input("input_values: int32")
    .Input("input_splits: Tsplits")
    .Output("output: string")
    .Attr("errors: {'ignore', 'replace', 'strict'} = 'replace'")
    .Attr("output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}")
    .Attr("replacement_char: int = 65533")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Shape(UnicodeEncodeShape)
    .NotDifferentiable()
    .Summary("Strings from the rows of a ragged tensor of Unicode code points.");
MILLRACE_OP(UnicodeTranscode)
    .Input("input: string")
    .Output("output: string")
    .Attr("input_encoding: string")
    .Attr("output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}")
    .Attr("errors: {'strict', 'replace', 'ignore'} = 'replace'")
    .Attr("replacement_char: int = 65533")
    .Attr("replace_control_characters: bool = false")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Converts strings from one encoding to another.");
MILLRACE_OP(UnicodeScript)
    .Input("input: int32")
    .Output("output: int32")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("The script (ICU's number) of each Unicode code point; -1 where there is none.");
MILLRACE_KERNEL(UnicodeDecode, kCpu, UnicodeDecodeKernel);
MILLRACE_KERNEL(UnicodeDecodeWithOffsets, kCpu, UnicodeDecodeKernel);
MILLRACE_KERNEL(UnicodeEncode, kCpu, UnicodeEncodeKernel);
MILLRACE_KERNEL(UnicodeTranscode, kCpu, UnicodeTranscodeKernel);
MILLRACE_KERNEL(UnicodeScript, kCpu, UnicodeScriptKernel);

}  // namespace
}  // namespace millrace
