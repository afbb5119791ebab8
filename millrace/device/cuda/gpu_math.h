// How products and convolutions of this process are computed on GPUs.
#pragma once

#include <utility>

namespace millrace {

struct GpuMath {
  // Products and convolutions of float multiply numbers of TF32 (10 bits of mantissa), as in TensorFlow, and add up in
  // float. MILLRACE_TF32=0 or NVIDIA_TF32_OVERRIDE=0 turns it off.
  bool tf32 = true;
  // Engines of cuDNN's whose results depend on timing are left out. MILLRACE_CUDNN_DETERMINISTIC=0 lets them in.
  bool deterministic = true;

  friend bool operator==(const GpuMath&, const GpuMath&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const GpuMath& m) {
    return H::combine(std::move(h), m.tf32, m.deterministic);
  }

  // As the environment says; it is read when a kernel is made.
  static GpuMath FromEnvironment();
};

}  // namespace millrace
