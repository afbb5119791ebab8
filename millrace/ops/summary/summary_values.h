// What summary ops and summary writers put into a Summary.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/proto/summary.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

namespace pb = ::tensorflow;

// A histogram of numbers or truth values. INVALID_ARGUMENT names `whose` when one is not finite.
Status AddHistogram(const std::string& tag, const Tensor& values, const std::string& whose, pb::Summary* summary);

// Pictures [batch, height, width, channels], at most `max_images`, as PNGs. Pixels that are not finite get `bad_color`.
Status AddImages(const std::string& tag, const Tensor& images, int64_t max_images, absl::Span<const uint8_t> bad_color,
                 pb::Summary* summary);

// Sounds [batch, frames] or [batch, frames, channels] of floats from -1 to 1, at most `max_outputs`, as WAV files.
Status AddSounds(const std::string& tag, const Tensor& sounds, float sample_rate, int64_t max_outputs,
                 pb::Summary* summary);

// A tensor of numbers or strings.
void SetSummaryTensor(const Tensor& tensor, pb::Summary::Value* value);

}  // namespace millrace
