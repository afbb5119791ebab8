// StringFormat: formats tensors into a template.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "millrace/base/float_text.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

template <typename T>
void AppendElement(const T& value, std::string* out) {
  if constexpr (std::is_same_v<T, std::string>) {
    absl::StrAppend(out, "\"", absl::Utf8SafeCEscape(value), "\"");
  } else if constexpr (std::is_same_v<T, bool>) {
    out->push_back(value ? '1' : '0');
  } else if constexpr (std::is_same_v<T, double>) {
    out->append(DoubleText(value));
  } else if constexpr (std::is_integral_v<T>) {
    absl::StrAppend(out, static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(value));
  } else {
    out->append(FloatText(static_cast<float>(value)));
  }
}

// Formats one tensor: elements of a row on one line, rows on separate lines, and one more empty line per further
// dimension. Only the first and last `ends` entries of each dimension are shown.
template <typename T>
class Printer {
 public:
  Printer(const Tensor& tensor, int64_t ends, std::string* out) : tensor_(tensor), ends_(ends), out_(out) {}

  void Dim(int dim, int64_t at) {
    if (dim == tensor_.rank()) return AppendElement(tensor_.data<T>()[at], out_);
    const int64_t size = tensor_.dim(dim), step = tensor_.shape().Product(dim + 1, tensor_.rank());
    out_->push_back('[');
    for (int64_t i = 0; i < std::min(ends_, size); ++i) {
      if (i > 0) Space(dim);
      Dim(dim + 1, at + i * step);
    }
    if (size > 2 * ends_) {
      Space(dim);
      out_->append("...");
    }
    for (int64_t i = std::max(ends_, size - ends_); i < size; ++i) {
      Space(dim);
      Dim(dim + 1, at + i * step);
    }
    out_->push_back(']');
  }

 private:
  void Space(int dim) {
    if (dim == tensor_.rank() - 1) return out_->push_back(' ');
    out_->append(static_cast<size_t>(tensor_.rank() - dim - 1), '\n');
    out_->append(static_cast<size_t>(dim + 1), ' ');
  }

  const Tensor& tensor_;
  const int64_t ends_;
  std::string* const out_;
};

using PrintedTypes = JoinTypes<RealTypes, Types<bool, std::string>>::type;

void AppendTensor(const Tensor& tensor, int64_t summarize, std::string* out) {
  const int64_t n = tensor.num_elements();
  const int64_t limit = summarize < 0 ? n : std::min(summarize, n);
  const bool printed = DispatchType(PrintedTypes(), tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (std::is_same_v<T, bool> && limit == 0) return;
    if (tensor.rank() == 0 && limit == 0) {
      out->append("...");
    } else {
      Printer<T>(tensor, limit, out).Dim(0, 0);
    }
  });
  if (printed) return;
  if (tensor.rank() > 0) out->push_back('[');
  for (int64_t i = 0; i < limit; ++i) out->append(i == 0 ? "?" : " ?");
  if (limit < n) out->append("...");
  if (tensor.rank() > 0) out->push_back(']');
}

class StringFormatKernel : public Kernel {
 public:
  explicit StringFormatKernel(KernelInit& init) {
    std::string text, placeholder;
    init.Attr("template", &text);
    init.Attr("placeholder", &placeholder);
    init.Attr("summarize", &summarize_);
    parts_ = absl::StrSplit(text, placeholder);
    if (static_cast<int>(parts_.size()) - 1 != init.node().num_inputs()) {
      init.Fail(InvalidArgument("num placeholders in template and num inputs must match: ", parts_.size() - 1, " vs. ",
                                init.node().num_inputs()));
    }
  }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, Shape()));
    std::string& text = out->scalar<std::string>();
    text = parts_[0];
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      AppendTensor(ctx.input(i), summarize_, &text);
      text += parts_[i + 1];
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::string> parts_;
  int64_t summarize_ = 3;
};

Status StringFormatShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const std::string text, c.Attr<std::string>("template"));
  MR_ASSIGN_OR_RETURN(const std::string placeholder, c.Attr<std::string>("placeholder"));
  const std::vector<absl::string_view> parts = absl::StrSplit(text, placeholder);
  if (static_cast<int>(parts.size()) - 1 != c.num_inputs()) {
    return InvalidArgument("num placeholders in template and num inputs must match: ", parts.size() - 1, " vs. ",
                           c.num_inputs());
  }
  c.set_output(0, PartialShape::Scalar());
  return absl::OkStatus();
}

MILLRACE_OP(StringFormat)
    .Input("inputs: T")
    .Output("output: string")
    .Attr("T: list(type) >= 0")
    .Attr("template: string = '%s'")
    .Attr("placeholder: string = '%s'")
    .Attr("summarize: int = 3")
    .Shape(StringFormatShape)
    .NotDifferentiable()
    .Summary("Formats tensors into a template string.");
MILLRACE_KERNEL(StringFormat, kCpu, StringFormatKernel);

}  // namespace
}  // namespace millrace
