// The text of a GPU's own convolutions: those that cuDNN has no engine for.
#pragma once

#include <string>

#include "millrace/ops/nn/convolution.h"

namespace millrace {

struct ConvProgram {
  DType dtype = DType::kFloat;

  // The kernels in the text. Of the first two: the number of elements of the result, the OnDevice, the addresses of
  // RunConvolution's a, b and c. kFilter: the Columns, the OnDevice, the addresses of input and gradient, and of the
  // pieces; kJoin: the Columns of the pieces, their address, that of the filter's gradient.
  static constexpr char kForward[] = "millrace_conv_forward";
  static constexpr char kInput[] = "millrace_conv_input";
  static constexpr char kFilter[] = "millrace_conv_filter";
  static constexpr char kJoin[] = "millrace_conv_filter_join";

  // As the text has it.
  struct OnDevice {
    int64_t batch, in_channels, out_channels, groups;
    int channels_first;
    WindowDim dim[3];
    explicit OnDevice(const ConvGeometry& g);
  };

  // C++ for NVRTC, complete but for options: what all such texts begin with, and the kernels.
  std::string Text() const;
  static std::string Headers();
  std::string Kernels(const std::string& suffix = "") const;
};

}  // namespace millrace
