// StringSplit and StringSplitV2: split each string; the result is a sparse matrix of strings.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

using Pieces = std::vector<absl::string_view>;

// Splits at every byte in `delimiters`; between all bytes if it is empty.
void SplitAtAny(absl::string_view text, absl::string_view delimiters, bool skip_empty, Pieces* pieces) {
  if (text.empty()) return;
  if (delimiters.empty()) {
    for (size_t i = 0; i < text.size(); ++i) pieces->push_back(text.substr(i, 1));
    return;
  }
  size_t begin = 0;
  while (true) {
    const size_t end = std::min(text.find_first_of(delimiters, begin), text.size());
    if (end > begin || !skip_empty) pieces->push_back(text.substr(begin, end - begin));
    if (end == text.size()) return;
    begin = end + 1;
  }
}

// Like Python's split: at runs of white space if `separator` is empty, and at most `limit` times unless that is
// negative.
void SplitAt(absl::string_view text, absl::string_view separator, int64_t limit, Pieces* pieces) {
  if (limit == 0) {
    pieces->push_back(text);
    return;
  }
  int64_t splits = 0;
  if (separator.empty()) {
    text = absl::StripLeadingAsciiWhitespace(text);
    while (!text.empty()) {
      const size_t end = std::find_if(text.begin(), text.end(), absl::ascii_isspace) - text.begin();
      pieces->push_back(text.substr(0, end));
      text = absl::StripLeadingAsciiWhitespace(text.substr(end));
      if (++splits == limit) {
        pieces->push_back(text);
        return;
      }
    }
    return;
  }
  while (splits != limit) {
    const size_t end = text.find(separator);
    if (end == absl::string_view::npos) break;
    pieces->push_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
    ++splits;
  }
  pieces->push_back(text);
}

// Writes the pieces of all strings as a sparse matrix, with the pieces of each row in columns 0, 1 and so on.
Status SetSparse(KernelContext& ctx, int64_t rows, const Pieces& pieces, const std::vector<int64_t>& counts) {
  const auto n = static_cast<int64_t>(pieces.size());
  MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, Shape({n, 2})));
  MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(1, Shape({n})));
  MR_ASSIGN_OR_RETURN(Tensor * shape, ctx.AllocateOutput(2, Shape({2})));
  int64_t* index = indices->data<int64_t>();
  std::string* value = values->data<std::string>();
  int64_t columns = 0, at = 0;
  for (int64_t row = 0; row < rows; ++row) {
    columns = std::max(columns, counts[row]);
    for (int64_t column = 0; column < counts[row]; ++column, ++at) {
      index[2 * at] = row;
      index[2 * at + 1] = column;
      value[at].assign(pieces[at].data(), pieces[at].size());
    }
  }
  shape->data<int64_t>()[0] = rows;
  shape->data<int64_t>()[1] = columns;
  return absl::OkStatus();
}

template <typename Split>
Status SplitAll(KernelContext& ctx, Split&& split) {
  const Tensor& input = ctx.input(0);
  if (input.rank() != 1) {
    return InvalidArgument("input must be a vector, but has shape ", input.shape().ToString());
  }
  Pieces pieces;
  std::vector<int64_t> counts;
  for (const std::string& text : input.flat<std::string>()) {
    const size_t before = pieces.size();
    split(text, &pieces);
    counts.push_back(static_cast<int64_t>(pieces.size() - before));
  }
  return SetSparse(ctx, input.num_elements(), pieces, counts);
}

class StringSplitKernel : public Kernel {
 public:
  explicit StringSplitKernel(KernelInit& init) { init.Attr("skip_empty", &skip_empty_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* delimiter, ScalarString(ctx, 1, "delimiter"));
    return SplitAll(ctx,
                    [&](absl::string_view text, Pieces* pieces) { SplitAtAny(text, *delimiter, skip_empty_, pieces); });
  }

 private:
  bool skip_empty_ = true;
};

class StringSplitV2Kernel : public Kernel {
 public:
  explicit StringSplitV2Kernel(KernelInit& init) { init.Attr("maxsplit", &limit_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* separator, ScalarString(ctx, 1, "sep"));
    return SplitAll(ctx, [&](absl::string_view text, Pieces* pieces) { SplitAt(text, *separator, limit_, pieces); });
  }

 private:
  int64_t limit_ = -1;
};

Status StringSplitShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  c.set_output(0, PartialShape({PartialShape::kUnknown, 2}));
  c.set_output(1, PartialShape({PartialShape::kUnknown}));
  c.set_output(2, PartialShape({2}));
  return absl::OkStatus();
}

MILLRACE_OP(StringSplit)
    .Input("input: string")
    .Input("delimiter: string")
    .Output("indices: int64")
    .Output("values: string")
    .Output("shape: int64")
    .Attr("skip_empty: bool = true")
    .Shape(StringSplitShape)
    .NotDifferentiable()
    .Summary("Splits strings at any byte of delimiter.");
MILLRACE_OP(StringSplitV2)
    .Input("input: string")
    .Input("sep: string")
    .Output("indices: int64")
    .Output("values: string")
    .Output("shape: int64")
    .Attr("maxsplit: int = -1")
    .Shape(StringSplitShape)
    .NotDifferentiable()
    .Summary("Splits strings at a separator, or at white space.");
MILLRACE_KERNEL(StringSplit, kCpu, StringSplitKernel);
MILLRACE_KERNEL(StringSplitV2, kCpu, StringSplitV2Kernel);

}  // namespace
}  // namespace millrace
