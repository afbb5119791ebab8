// Values of Summaries, for summary ops and summary writers.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/proto/summary.pb.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

namespace pb = ::tensorflow;

// A histogram of numbers or bools. INVALID_ARGUMENT, naming `whose`, if a value is not finite.
Status AddHistogram(const std::string& tag, const Tensor& values, const std::string& whose, pb::Summary* summary);

// Images [batch, height, width, channels], at most `max_images`, as PNGs. Non-finite pixels get `bad_color`.
Status AddImages(const std::string& tag, const Tensor& images, int64_t max_images, absl::Span<const uint8_t> bad_color,
                 pb::Summary* summary);

// Audio [batch, frames] or [batch, frames, channels] of floats from -1 to 1, at most `max_outputs`, as WAV.
Status AddSounds(const std::string& tag, const Tensor& sounds, float sample_rate, int64_t max_outputs,
                 pb::Summary* summary);

// A tensor of numbers or strings.
void SetSummaryTensor(const Tensor& tensor, pb::Summary::Value* value);

}  // namespace millrace
