// Substr: substrings in bytes or characters.
#include <algorithm>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/broadcast.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/ops/string/utf8.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Advances *at by up to n characters; returns false if there are fewer.
bool Forward(absl::string_view text, int64_t n, size_t* at) {
  int64_t moved = 0;
  for (; moved < n && *at < text.size(); ++moved) {
    do {
      ++*at;
    } while (*at < text.size() && IsUtf8Continuation(text[*at]));
  }
  return moved == n;
}
bool Back(absl::string_view text, int64_t n, size_t* at) {
  int64_t moved = 0;
  for (; moved<n&& * at> 0; ++moved) {
    do {
      --*at;
    } while (*at > 0 && IsUtf8Continuation(text[*at]));
  }
  return moved == n;
}

// A negative position counts from the end. Returns false if it is outside the text.
bool Characters(absl::string_view text, int64_t pos, int64_t len, absl::string_view* part) {
  if (pos >= 0) {
    size_t begin = 0;
    if (!Forward(text, pos, &begin)) return false;
    size_t end = begin;
    Forward(text, len, &end);
    *part = text.substr(begin, end - begin);
    return true;
  }
  size_t end = text.size();
  if (!Back(text, std::max<int64_t>(-pos - len, 0), &end)) return false;
  size_t begin = end;
  if (!Back(text, std::min(len, -pos), &begin)) return false;
  *part = text.substr(begin, end - begin);
  return true;
}

// A negative length means up to the end.
bool Bytes(absl::string_view text, int64_t pos, int64_t len, absl::string_view* part) {
  const auto size = static_cast<int64_t>(text.size());
  if (pos < 0) pos += size;
  if (pos < 0 || pos > size) return false;
  *part = text.substr(static_cast<size_t>(pos), len < 0 ? absl::string_view::npos : static_cast<size_t>(len));
  return true;
}

class SubstrKernel : public Kernel {
 public:
  explicit SubstrKernel(KernelInit& init) {
    std::string unit;
    init.Attr("unit", &unit);
    characters_ = unit == "UTF8_CHAR";
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &input = ctx.input(0), &pos = ctx.input(1), &len = ctx.input(2);
    if (pos.shape() != len.shape()) {
      return InvalidArgument("pos and len should have the same shape, got: ", pos.shape().ToString(), " vs. ",
                             len.shape().ToString());
    }
    Broadcast broadcast;
    MR_RETURN_IF_ERROR(broadcast.Init({&input.shape(), &pos.shape()}));
    if (broadcast.shape().rank() > 2 && pos.rank() != 0 && pos.shape() != input.shape()) {
      return Unimplemented("Substr broadcast not implemented for ", broadcast.shape().rank(), " dimensions");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, broadcast.shape()));
    const std::string* from = input.data<std::string>();
    std::string* to = out->data<std::string>();
    const bool text_moves = broadcast.num_elements() > 0 && broadcast.moves(0);
    const bool pos_moves = broadcast.num_elements() > 0 && broadcast.moves(1);
    if (out->num_elements() == 0) return absl::OkStatus();
    Status status;
    broadcast.ForEachRun(0, broadcast.num_elements(), [&](const int64_t* offsets, int64_t begin, int64_t n) {
      for (int64_t i = 0; i < n && status.ok(); ++i) {
        const int64_t at = offsets[1] + (pos_moves ? i : 0);
        const std::string& text = from[offsets[0] + (text_moves ? i : 0)];
        status = Take(text, IntAt(pos, at), IntAt(len, at), begin + i, &to[begin + i]);
      }
    });
    return status;
  }

 private:
  Status Take(const std::string& text, int64_t pos, int64_t len, int64_t element, std::string* out) const {
    // Far outside any string, and safe to add and negate.
    constexpr int64_t kFar = int64_t{1} << 60;
    absl::string_view part;
    const int64_t p = std::clamp(pos, -kFar, kFar), l = std::clamp(len, -kFar, kFar);
    if (!(characters_ ? Characters(text, p, l, &part) : Bytes(text, p, l, &part))) {
      return InvalidArgument("pos ", pos, " out of range for string b'", text, "' at index ", element);
    }
    out->assign(part.data(), part.size());
    return absl::OkStatus();
  }

  bool characters_ = false;
};

Status SubstrShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape pos, c.input(1).MergeWith(c.input(2)));
  MR_ASSIGN_OR_RETURN(const PartialShape out, BroadcastShapes(c.input(0), pos));
  c.set_output(0, out);
  return absl::OkStatus();
}

MILLRACE_OP(Substr)
    .Input("input: string")
    .Input("pos: T")
    .Input("len: T")
    .Output("output: string")
    .Attr("T: {int32, int64}")
    .Attr("unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'")
    .Shape(SubstrShape)
    .NotDifferentiable()
    .Summary("Substrings from pos of at most len bytes or characters.");
MILLRACE_KERNEL(Substr, kCpu, SubstrKernel);

}  // namespace
}  // namespace millrace
