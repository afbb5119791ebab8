// Einsum.
#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/matrix_product.h"
#include "millrace/ops/math/einsum_view.h"

namespace millrace {
namespace {

using EinsumTypes = Types<float, double, half, bfloat16, int32_t, int64_t, std::complex<float>, std::complex<double>>;

// Nested loops over dimensions of given sizes and strides.
struct Loops {
  std::vector<int64_t> sizes, strides;

  Loops(const EinsumLabels& labels, const EinsumView& view, const std::map<EinsumLabel, int64_t>& all_sizes) {
    for (EinsumLabel label : labels) {
      sizes.push_back(all_sizes.at(label));
      strides.push_back(view.strides.at(label));
    }
  }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t size : sizes) n *= size;
    return n;
  }
  // Calls fn(offset) in row-major order.
  template <typename Fn>
  void ForEach(Fn&& fn) const {
    if (count() != 0) Walk(fn, 0, 0);
  }

 private:
  template <typename Fn>
  void Walk(Fn& fn, size_t depth, int64_t offset) const {
    if (depth == sizes.size()) return fn(offset);
    for (int64_t i = 0; i < sizes[depth]; ++i) Walk(fn, depth + 1, offset + i * strides[depth]);
  }
};

class EinsumKernel : public Kernel {
 public:
  explicit EinsumKernel(KernelInit& init) {
    std::string text;
    init.Attr("equation", &text);
    StatusOr<EinsumEquation> equation = EinsumEquation::Parse(text, init.node().num_inputs());
    if (equation.ok()) {
      equation_ = *std::move(equation);
    } else {
      init.Fail(equation.status());
    }
    if (!DispatchType(EinsumTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    std::vector<PartialShape> shapes;
    for (int i = 0; i < ctx.num_inputs(); ++i) shapes.push_back(ctx.input(i).shape());
    MR_ASSIGN_OR_RETURN(const EinsumDims dims, EinsumDims::Make(equation_, shapes));
    MR_ASSIGN_OR_RETURN(const Shape shape, dims.OutputShape());
    const EinsumView a(dims.inputs[0], ctx.input(0).shape(), dims.sizes);
    const EinsumView out(dims.output, shape, dims.sizes);
    if (ctx.num_inputs() == 1) {
      // The labels of the output in order; a broadcast label keeps its size of 1.
      const EinsumLabels kept = FilterLabels(out.labels, [&](EinsumLabel l) { return HasLabel(a.labels, l); });
      MR_ASSIGN_OR_RETURN(const Tensor packed, Pack(ctx, ctx.input(0), a, kept, dims));
      return Unpack(ctx, packed, kept, out, dims, shape);
    }
    const EinsumView b(dims.inputs[1], ctx.input(1).shape(), dims.sizes);
    const auto [batch, inner, free_a, free_b] = EinsumProduct::Of(a, b, out);
    MR_ASSIGN_OR_RETURN(const Tensor left, Pack(ctx, ctx.input(0), a, JoinLabels(batch, free_a, inner), dims));
    MR_ASSIGN_OR_RETURN(const Tensor right, Pack(ctx, ctx.input(1), b, JoinLabels(batch, inner, free_b), dims));
    const int64_t m = dims.Count(free_a), k = dims.Count(inner), n = dims.Count(free_b);
    const int64_t batches = dims.Count(batch);
    MR_ASSIGN_OR_RETURN(const Shape product_shape, Shape::Make({batches, m, n}));
    MR_ASSIGN_OR_RETURN(Tensor product, ctx.AllocateTemp(ctx.output_type(0), product_shape));
    if (product.num_elements() != 0) {
      std::vector<MatrixPair> pairs;
      for (int64_t i = 0; i < batches; ++i) pairs.push_back({i, i});
      MR_RETURN_IF_ERROR(MatrixProducts(ctx, {.m = m, .n = n, .k = k}, pairs, left, right, &product));
    }
    return Unpack(ctx, product, JoinLabels(batch, free_a, free_b), out, dims, shape);
  }

 private:
  // The elements in the order of `labels`, summed over the view's other labels.
  static StatusOr<Tensor> Pack(KernelContext& ctx, const Tensor& x, const EinsumView& view, const EinsumLabels& labels,
                               const EinsumDims& dims) {
    const EinsumLabels others = FilterLabels(view.labels, [&](EinsumLabel l) { return !HasLabel(labels, l); });
    const Loops outer(labels, view, dims.sizes), inner(others, view, dims.sizes);
    if (others.empty() && labels == view.labels && outer.count() == x.num_elements()) return x;
    MR_ASSIGN_OR_RETURN(Tensor packed, ctx.AllocateTemp(x.dtype(), Shape({outer.count()})));
    DispatchType(EinsumTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      using C = ComputeType<T>;
      const T* from = x.data<T>();
      T* to = packed.data<T>();
      outer.ForEach([&](int64_t at) {
        if (others.empty()) {
          *to++ = from[at];
          return;
        }
        C sum(0);
        inner.ForEach([&](int64_t offset) { sum += static_cast<C>(from[at + offset]); });
        *to++ = static_cast<T>(sum);
      });
    });
    return packed;
  }

  // Copies elements in the order of `labels` to the output; off-diagonal elements are 0.
  static Status Unpack(KernelContext& ctx, const Tensor& packed, const EinsumLabels& labels, const EinsumView& out,
                       const EinsumDims& dims, const Shape& shape) {
    if (labels == out.labels && packed.num_elements() == shape.num_elements()) {
      ctx.SetOutput(0, packed.ViewAs(packed.dtype(), shape));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, shape));
    const Loops loops(labels, out, dims.sizes);
    const bool has_gaps = loops.count() != shape.num_elements();
    DispatchType(EinsumTypes{}, packed.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* to = output->data<T>();
      if (has_gaps) std::fill_n(to, shape.num_elements(), T(0));
      const T* from = packed.data<T>();
      loops.ForEach([&](int64_t at) { to[at] = *from++; });
    });
    return absl::OkStatus();
  }

  EinsumEquation equation_;
};

Status EinsumShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const std::string text, c.Attr<std::string>("equation"));
  MR_ASSIGN_OR_RETURN(const EinsumEquation equation, EinsumEquation::Parse(text, c.num_inputs()));
  std::vector<PartialShape> shapes;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.input(i).known_rank()) return absl::OkStatus();
    shapes.push_back(c.input(i));
  }
  MR_ASSIGN_OR_RETURN(const EinsumDims dims, EinsumDims::Make(equation, shapes));
  PartialShape output = PartialShape::Scalar();
  for (EinsumLabel label : dims.output) output.AddDim(dims.sizes.at(label));
  c.set_output(0, std::move(output));
  return absl::OkStatus();
}

// Writes labels as letters, those of "..." as letters that the equation does not use.
class Letters {
 public:
  explicit Letters(const EinsumDims& dims) {
    std::string free;
    for (char c = 'A'; c <= 'z'; ++c) {
      if (std::isalpha(static_cast<unsigned char>(c)) && dims.sizes.count(c) == 0) free.push_back(c);
    }
    for (const auto& [label, size] : dims.sizes) {
      if (label < kEllipsis) {
        names_[label] = static_cast<char>(label);
      } else {
        names_[label] = used_ < free.size() ? free[used_] : '?';
        ++used_;
      }
    }
  }
  std::string operator()(const EinsumLabels& labels) const {
    std::string text;
    for (EinsumLabel label : labels) text.push_back(names_.at(label));
    return text;
  }

 private:
  std::map<EinsumLabel, char> names_;
  size_t used_ = 0;
};

EinsumLabels Unique(const EinsumLabels& labels) {
  EinsumLabels result;
  for (EinsumLabel label : labels) {
    if (!HasLabel(result, label)) result.push_back(label);
  }
  return result;
}

// Swaps input i and the output in the equation. Labels that only this input has were summed over; a tensor of ones
// restores them. Broadcast dimensions of size 1 are removed and restored.
Endpoint InputGradient(GradientContext& c, const EinsumDims& dims, const std::vector<PartialShape>& shapes, int i) {
  const Letters letters(dims);
  const PartialShape& shape = shapes[i];
  EinsumLabels own;
  std::vector<int32_t> lone_axes;
  EinsumLabels lone;
  const int other = c.num_inputs() == 2 ? 1 - i : -1;
  for (int d = 0; d < shape.rank(); ++d) {
    const EinsumLabel label = dims.inputs[i][d];
    if (shape.dim(d) == 1 && dims.sizes.at(label) != 1) continue;
    own.push_back(label);
    if (HasLabel(dims.output, label) || (other >= 0 && HasLabel(dims.inputs[other], label)) || HasLabel(lone, label))
      continue;
    lone.push_back(label);
    lone_axes.push_back(d);
  }
  const EinsumLabels kept = Unique(FilterLabels(own, [&](EinsumLabel l) { return !HasLabel(lone, l); }));
  Endpoint grad = c.grad();
  std::string have = letters(dims.output);
  if (other >= 0) {
    Endpoint factor = c.Conj(c.input(other));
    EinsumLabels factor_labels;
    std::vector<int32_t> squeezed;
    for (int d = 0; d < shapes[other].rank(); ++d) {
      const EinsumLabel label = dims.inputs[other][d];
      if (shapes[other].dim(d) == 1 && dims.sizes.at(label) != 1) {
        squeezed.push_back(d);
      } else {
        factor_labels.push_back(label);
      }
    }
    if (!squeezed.empty()) {
      factor = c.Op("Squeeze", {factor}, {{"squeeze_dims", std::vector<int>(squeezed.begin(), squeezed.end())}});
    }
    const std::string to = letters(lone.empty() ? own : kept);
    grad = c.Op("Einsum", {grad, factor}, {{"equation", have + "," + letters(factor_labels) + "->" + to}, {"N", 2}});
    have = to;
  }
  if (!lone.empty()) {
    const Endpoint sizes = c.Op("GatherV2", {c.Shape(c.input(i)), c.Ints(lone_axes), c.Scalar<int32_t>(0)});
    const Endpoint ones = c.Op("Fill", {sizes, c.ScalarLike(1, grad.dtype())});
    grad = c.Op("Einsum", {grad, ones}, {{"equation", have + "," + letters(lone) + "->" + letters(own)}, {"N", 2}});
  } else if (other < 0) {
    grad = c.Op("Einsum", {grad}, {{"equation", have + "->" + letters(own)}, {"N", 1}});
  }
  if (static_cast<int>(own.size()) != shape.rank()) grad = c.Reshape(grad, c.Shape(c.input(i)));
  return grad;
}

Status EinsumGradient(GradientContext& c) {
  MR_ASSIGN_OR_RETURN(const std::string text, c.Attr<std::string>("equation"));
  MR_ASSIGN_OR_RETURN(const EinsumEquation equation, EinsumEquation::Parse(text, c.num_inputs()));
  std::vector<PartialShape> shapes;
  for (int i = 0; i < c.num_inputs(); ++i) {
    shapes.push_back(c.input(i).shape());
    const std::string& subscripts = equation.inputs[i];
    if (shapes.back().known_rank()) continue;
    if (subscripts.find('.') != std::string::npos) {
      return Unimplemented("the gradient of Einsum with '...' needs inputs of known rank");
    }
    shapes.back() = PartialShape::UnknownOfRank(static_cast<int>(subscripts.size()));
  }
  MR_ASSIGN_OR_RETURN(const EinsumDims dims, EinsumDims::Make(equation, shapes));
  for (int i = 0; i < c.num_inputs(); ++i) {
    c.set_input_grad(i, InputGradient(c, dims, shapes, i));
  }
  return c.status();
}

}  // namespace

MILLRACE_OP(Einsum)
    .Input("inputs: N * T")
    .Output("output: T")
    .Attr("equation: string")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Shape(EinsumShape)
    .Gradient(EinsumGradient)
    .Summary("Einstein summation, for example \"ab,bc->ac\"");

MILLRACE_KERNEL(Einsum, kCpu, EinsumKernel);

}  // namespace millrace
