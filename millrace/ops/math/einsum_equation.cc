#include "millrace/ops/math/einsum_equation.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace millrace {
namespace {

Status CheckSubscripts(absl::string_view text) {
  bool seen_ellipsis = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::isalpha(static_cast<unsigned char>(text[i]))) continue;
    if (text.substr(i, 3) != "...") {
      return InvalidArgument("Einsum subscripts hold letters and '...', not '", text.substr(i, 1), "': ", text);
    }
    if (seen_ellipsis) return InvalidArgument("Einsum subscripts hold more than one '...': ", text);
    seen_ellipsis = true;
    i += 2;
  }
  return absl::OkStatus();
}

int NumLetters(absl::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return c != '.'; }));
}

EinsumLabels Expand(absl::string_view text, int ellipsis_rank) {
  EinsumLabels labels;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '.') {
      labels.push_back(text[i]);
      continue;
    }
    for (int d = ellipsis_rank - 1; d >= 0; --d) labels.push_back(kEllipsis + d);
    i += 2;
  }
  return labels;
}

Status NoteSize(EinsumDims* dims, EinsumLabel label, int64_t size, const PartialShape& shape) {
  auto [it, is_new] = dims->sizes.try_emplace(label, size);
  if (is_new || it->second == size || size == -1) return absl::OkStatus();
  const bool broadcasts = label >= kEllipsis;
  if (it->second == -1 || (broadcasts && it->second == 1)) {
    it->second = size;
  } else if (!(broadcasts && size == 1)) {
    return InvalidArgument("Expected dimension ", it->second, " for label '",
                           label >= kEllipsis ? std::string("...") : std::string(1, static_cast<char>(label)),
                           "' of Einsum but got dimension ", size, " in shape ", shape.ToString());
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<EinsumEquation> EinsumEquation::Parse(absl::string_view text, int num_inputs) {
  const std::string tight = absl::StrReplaceAll(text, {{" ", ""}});
  const std::vector<std::string> sides = absl::StrSplit(tight, absl::string_view("->"));
  if (sides.size() != 2) return InvalidArgument("Expecting exactly one '->' in Einsum equation: ", text);
  EinsumEquation equation;
  equation.inputs = absl::StrSplit(sides[0], ',');
  equation.output = sides[1];
  if (equation.inputs.size() != 1 && equation.inputs.size() != 2) {
    return InvalidArgument("Expecting 1 or 2 input subscripts in equation '", text,
                           "' but got: ", equation.inputs.size());
  }
  if (static_cast<int>(equation.inputs.size()) != num_inputs) {
    return InvalidArgument("Expected ", equation.inputs.size(), " inputs for equation '", text,
                           "' but got: ", num_inputs);
  }
  for (const std::string& input : equation.inputs) MR_RETURN_IF_ERROR(CheckSubscripts(input));
  MR_RETURN_IF_ERROR(CheckSubscripts(equation.output));
  return equation;
}

StatusOr<EinsumDims> EinsumDims::Make(const EinsumEquation& equation, const std::vector<PartialShape>& shapes) {
  EinsumDims dims;
  int ellipsis_rank = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::string& text = equation.inputs[i];
    const bool has_ellipsis = text.find('.') != std::string::npos;
    const int rest = shapes[i].rank() - NumLetters(text);
    if (has_ellipsis ? rest < 0 : rest != 0) {
      return InvalidArgument("Einsum subscripts '", text, "' do not fit input ", i, " of shape ", shapes[i].ToString());
    }
    dims.inputs.push_back(Expand(text, rest));
    ellipsis_rank = std::max(ellipsis_rank, rest);
    for (int d = 0; d < shapes[i].rank(); ++d) {
      MR_RETURN_IF_ERROR(NoteSize(&dims, dims.inputs.back()[d], shapes[i].dim(d), shapes[i]));
    }
  }
  if (ellipsis_rank > 0 && equation.output.find('.') == std::string::npos) {
    return InvalidArgument("Einsum output '", equation.output, "' lacks '...', which stands for ", ellipsis_rank,
                           " dimensions of the inputs");
  }
  dims.output = Expand(equation.output, ellipsis_rank);
  for (EinsumLabel label : dims.output) {
    if (dims.sizes.count(label) == 0) {
      return InvalidArgument("Einsum output has the label '", std::string(1, static_cast<char>(label)),
                             "' that no input has");
    }
  }
  return dims;
}

int64_t EinsumDims::Count(const EinsumLabels& labels) const {
  int64_t n = 1;
  for (const EinsumLabel label : labels) n *= sizes.at(label);
  return n;
}

StatusOr<Shape> EinsumDims::OutputShape() const {
  Shape::Dims dims;
  for (const EinsumLabel label : output) dims.push_back(sizes.at(label));
  return Shape::Make(dims);
}

}  // namespace millrace
