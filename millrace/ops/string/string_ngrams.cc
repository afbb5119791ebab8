// StringNGrams: the n-grams of each row of a ragged tensor of strings.
#include <algorithm>
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// A limit on the tokens in all n-grams; more indicates wrong widths.
constexpr int64_t kMaxTokens = int64_t{1} << 28;

class StringNGramsKernel : public Kernel {
 public:
  explicit StringNGramsKernel(KernelInit& init) {
    init.Attr("separator", &separator_);
    init.Attr("ngram_widths", &widths_);
    init.Attr("left_pad", &left_pad_);
    init.Attr("right_pad", &right_pad_);
    init.Attr("pad_width", &pad_width_);
    init.Attr("preserve_short_sequences", &preserve_short_);
    for (const int64_t width : widths_) {
      if (width < 1 || width > std::numeric_limits<int32_t>::max()) {
        init.Fail(InvalidArgument("ngram_widths must be positive 32-bit numbers, not ", width));
      }
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &data = ctx.input(0), &splits = ctx.input(1);
    if (data.rank() != 1 || splits.rank() != 1) {
      return InvalidArgument("data and data_splits must be vectors, but have shapes ", data.shape().ToString(), " and ",
                             splits.shape().ToString());
    }
    MR_RETURN_IF_ERROR(CheckSplits(splits, data.num_elements()));
    MR_ASSIGN_OR_RETURN(Tensor * out_splits, ctx.AllocateOutput(1, splits.shape()));
    const bool wide = splits.dtype() == DType::kInt64;
    const auto set_split = [&](int64_t i, int64_t value) {
      if (wide) {
        out_splits->data<int64_t>()[i] = value;
      } else {
        out_splits->data<int32_t>()[i] = static_cast<int32_t>(value);
      }
    };
    const int64_t rows = std::max<int64_t>(splits.num_elements() - 1, 0);
    if (splits.num_elements() > 0) set_split(0, 0);
    std::vector<int64_t> counts(static_cast<size_t>(rows) + 1);
    int64_t tokens = 0;
    const bool empty = data.num_elements() == 0;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t length = IntAt(splits, row + 1) - IntAt(splits, row);
      int64_t count = 0;
      for (const int64_t width : widths_) {
        if (empty) break;
        const int64_t n = NumNGrams(length, width);
        // Both are below 2^33, so the product cannot overflow before it is seen to be too large.
        if (n > 0 && width > kMaxTokens / n) return TooMany();
        tokens += n * width;
        count += n;
        if (tokens > kMaxTokens) return TooMany();
      }
      if (preserve_short_ && length > 0 && count == 0) {
        if (pad_width_ < 0) {
          return InvalidArgument(
              "Pad width should be >= 0 when preserve_short_sequences is True and ngram_widths are not "
              "provided, got ",
              pad_width_);
        }
        if (pad_width_ > kMaxTokens) return TooMany();
        tokens += length + 2 * pad_width_;
        if (tokens > kMaxTokens) return TooMany();
        count = 1;
      }
      counts[row + 1] = counts[row] + count;
      set_split(row + 1, counts[row + 1]);
    }
    // Without splits TensorFlow returns an empty n-gram for each string.
    const int64_t size = splits.num_elements() == 0 ? data.num_elements() : counts[rows];
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape({size})));
    const std::string* from = data.data<std::string>();
    std::string* to = out->data<std::string>();
    ctx.ParallelFor(rows, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = IntAt(splits, row), length = IntAt(splits, row + 1) - first;
        std::string* at = to + counts[row];
        std::string* const stop = to + counts[row + 1];
        for (const int64_t width : widths_) {
          if (at == stop) break;
          const int64_t n = NumNGrams(length, width);
          Write(from + first, at, n, width);
          at += n;
        }
        if (at != stop) Write(from + first, at, 1, length + 2 * pad_width_);
      }
    });
    return absl::OkStatus();
  }

 private:
  static Status TooMany() { return ResourceExhausted("the n-grams have more than ", kMaxTokens, " tokens"); }

  static Status CheckSplits(const Tensor& splits, int64_t size) {
    const int64_t n = splits.num_elements();
    if (n == 0) return absl::OkStatus();
    if (IntAt(splits, 0) != 0) return InvalidArgument("First split value must be 0, got ", IntAt(splits, 0));
    for (int64_t i = 1; i < n; ++i) {
      const int64_t value = IntAt(splits, i), before = IntAt(splits, i - 1);
      if (value < before || value > size) {
        return InvalidArgument("Invalid split value ", value, ", must be in [", before, ", ", size, "]");
      }
    }
    if (IntAt(splits, n - 1) != size) {
      return InvalidArgument("Last split value must be data size. Expected ", size, ", got ", IntAt(splits, n - 1));
    }
    return absl::OkStatus();
  }

  // Padding on either side of a sequence, for n-grams of this width.
  int64_t PadWidth(int64_t width) const { return std::min(pad_width_ < 0 ? width - 1 : pad_width_, width - 1); }
  int64_t NumNGrams(int64_t length, int64_t width) const {
    return std::max<int64_t>(0, length + 2 * PadWidth(width) - width + 1);
  }

  // The `n` n-grams of one sequence.
  void Write(const std::string* data, std::string* out, int64_t n, int64_t width) const {
    const int64_t pad = PadWidth(width);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t left = std::max<int64_t>(0, pad - k), right = std::max<int64_t>(0, pad - (n - k - 1));
      const int64_t tokens = width - left - right, first = left > 0 ? 0 : k - pad;
      std::string& text = out[k];
      bool begun = false;
      const auto append = [&](const std::string& token) {
        if (begun) text += separator_;
        text += token;
        begun = true;
      };
      for (int64_t i = 0; i < left; ++i) append(left_pad_);
      for (int64_t i = 0; i < tokens; ++i) append(data[first + i]);
      for (int64_t i = 0; i < right; ++i) append(right_pad_);
    }
  }

  std::string separator_, left_pad_, right_pad_;
  std::vector<int64_t> widths_;
  int64_t pad_width_ = 0;
  bool preserve_short_ = false;
};

Status StringNGramsShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MR_ASSIGN_OR_RETURN(const PartialShape splits, c.WithRank(1, 1));
  c.set_output(0, PartialShape({PartialShape::kUnknown}));
  c.set_output(1, splits);
  return absl::OkStatus();
}

MILLRACE_OP(StringNGrams)
    .Input("data: string")
    .Input("data_splits: Tsplits")
    .Output("ngrams: string")
    .Output("ngrams_splits: Tsplits")
    .Attr("separator: string")
    .Attr("ngram_widths: list(int) >= 0")
    .Attr("left_pad: string")
    .Attr("right_pad: string")
    .Attr("pad_width: int")
    .Attr("preserve_short_sequences: bool")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Shape(StringNGramsShape)
    .NotDifferentiable()
    .Summary("The n-grams of each row of a ragged tensor of strings.");
MILLRACE_KERNEL(StringNGrams, kCpu, StringNGramsKernel);

}  // namespace
}  // namespace millrace
