// The gradients of a convolution and of its own gradients: the same three formulas for every kind of convolution.
#pragma once

#include "absl/types/span.h"
#include "millrace/graph/gradient.h"

namespace millrace {

// A convolution's ops, and the attributes that all three have.
struct ConvolutionOps {
  const char* forward;    // (input, filter)
  const char* to_input;   // (shape of the input, filter, gradient)
  const char* to_filter;  // (input, shape of the filter, gradient)
  absl::Span<const char* const> attrs;
};

template <const ConvolutionOps& ops>
Status ConvolutionGradient(GradientContext& c) {
  const Endpoint x = c.input(0), filter = c.input(1), g = c.grad();
  c.set_input_grad(0, c.Op(ops.to_input, {c.Shape(x), filter, g}, c.CopyAttrs(ops.attrs)));
  c.set_input_grad(1, c.Op(ops.to_filter, {x, c.Shape(filter), g}, c.CopyAttrs(ops.attrs)));
  return absl::OkStatus();
}

// Of to_input.
template <const ConvolutionOps& ops>
Status ConvolutionInputGradient(GradientContext& c) {
  const Endpoint filter = c.input(1), dy = c.input(2), g = c.grad();
  c.set_input_grad(1, c.Op(ops.to_filter, {g, c.Shape(filter), dy}, c.CopyAttrs(ops.attrs)));
  c.set_input_grad(2, c.Op(ops.forward, {g, filter}, c.CopyAttrs(ops.attrs)));
  return absl::OkStatus();
}

// Of to_filter.
template <const ConvolutionOps& ops>
Status ConvolutionFilterGradient(GradientContext& c) {
  const Endpoint x = c.input(0), dy = c.input(2), g = c.grad();
  c.set_input_grad(0, c.Op(ops.to_input, {c.Shape(x), g, dy}, c.CopyAttrs(ops.attrs)));
  c.set_input_grad(2, c.Op(ops.forward, {x, g}, c.CopyAttrs(ops.attrs)));
  return absl::OkStatus();
}

}  // namespace millrace
