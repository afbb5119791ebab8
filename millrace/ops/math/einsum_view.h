// Tensors seen by the labels of an equation.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>

#include "millrace/ops/math/einsum_equation.h"
#include "millrace/tensor/shape.h"

namespace millrace {

inline bool HasLabel(const EinsumLabels& labels, EinsumLabel label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// A strided view with labelled dimensions: a label that occurs twice iterates over the diagonal, and a broadcast
// dimension of size 1 has stride 0.
struct EinsumView {
  std::map<EinsumLabel, int64_t> strides;
  EinsumLabels labels;  // each once

  EinsumView(const EinsumLabels& all, const Shape& shape, const std::map<EinsumLabel, int64_t>& sizes) {
    int64_t stride = 1;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if (shape.dim(d) == sizes.at(all[d])) strides[all[d]] += stride;
      stride *= shape.dim(d);
    }
    for (EinsumLabel label : all) {
      if (strides.count(label) != 0 && !HasLabel(labels, label)) labels.push_back(label);
    }
  }
};

inline EinsumLabels JoinLabels(const EinsumLabels& a, const EinsumLabels& b, const EinsumLabels& c = {}) {
  EinsumLabels all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  return all;
}

// Labels of `from` for which `keep` holds.
template <typename Fn>
EinsumLabels FilterLabels(const EinsumLabels& from, Fn keep) {
  EinsumLabels result;
  std::copy_if(from.begin(), from.end(), std::back_inserter(result), keep);
  return result;
}

// The labels of a batch of matrix products of two operands: [batch, free_a, inner] by [batch, inner, free_b].
struct EinsumProduct {
  EinsumLabels batch, inner, free_a, free_b;

  static EinsumProduct Of(const EinsumView& a, const EinsumView& b, const EinsumView& out) {
    const auto in = [](const EinsumView& view) { return [&view](EinsumLabel l) { return HasLabel(view.labels, l); }; };
    const auto in_a = in(a), in_b = in(b), in_out = in(out);
    return {.batch = FilterLabels(a.labels, [&](EinsumLabel l) { return in_b(l) && in_out(l); }),
            .inner = FilterLabels(a.labels, [&](EinsumLabel l) { return in_b(l) && !in_out(l); }),
            .free_a = FilterLabels(a.labels, [&](EinsumLabel l) { return !in_b(l) && in_out(l); }),
            .free_b = FilterLabels(b.labels, [&](EinsumLabel l) { return !in_a(l) && in_out(l); })};
  }
};

}  // namespace millrace
