// Audio as WAV with 16-bit samples.
#include <algorithm>
#include <cmath>

#include "millrace/ops/summary/summary_values.h"

namespace millrace {
namespace {

void AppendLittleEndian(uint32_t value, int bytes, std::string* to) {
  for (int i = 0; i < bytes; ++i) to->push_back(static_cast<char>(value >> (8 * i)));
}

std::string EncodeWav(const float* samples, uint32_t frames, uint32_t channels, uint32_t rate) {
  constexpr uint32_t kHeader = 44, kSampleBytes = 2;
  const uint32_t data = frames * channels * kSampleBytes;
  std::string wav = "RIFF";
  wav.reserve(kHeader + data);
  AppendLittleEndian(kHeader - 8 + data, 4, &wav);
  wav += "WAVEfmt ";
  AppendLittleEndian(16, 4, &wav);
  AppendLittleEndian(1, 2, &wav);  // PCM
  AppendLittleEndian(channels, 2, &wav);
  AppendLittleEndian(rate, 4, &wav);
  AppendLittleEndian(rate * channels * kSampleBytes, 4, &wav);
  AppendLittleEndian(channels * kSampleBytes, 2, &wav);
  AppendLittleEndian(8 * kSampleBytes, 2, &wav);
  wav += "data";
  AppendLittleEndian(data, 4, &wav);
  for (uint32_t i = 0; i < frames * channels; ++i) {
    const float level =
        std::isnan(samples[i]) ? 0.0f : std::clamp(std::round(samples[i] * 32768.0f), -32768.0f, 32767.0f);
    AppendLittleEndian(static_cast<uint16_t>(static_cast<int16_t>(level)), 2, &wav);
  }
  return wav;
}

}  // namespace

Status AddSounds(const std::string& tag, const Tensor& sounds, float sample_rate, int64_t max_outputs,
                 pb::Summary* summary) {
  if (sounds.rank() != 2 && sounds.rank() != 3) {
    return InvalidArgument("sounds must be of rank 2 or 3, but have shape ", sounds.shape().ToString());
  }
  if (!(sample_rate > 0.0f)) return InvalidArgument("sample_rate must be > 0, got ", sample_rate);
  const int64_t frames = sounds.dim(1), channels = sounds.rank() == 2 ? 1 : sounds.dim(2);
  constexpr int64_t kMostSamples = int64_t{1} << 29;
  if (channels < 1 || channels > 0xffff || frames > kMostSamples / channels ||
      sample_rate >= 4e9f / (2.0f * channels)) {
    return InvalidArgument("a sound of shape ", sounds.shape().ToString(), " at a rate of ", sample_rate,
                           " does not fit into a WAV file");
  }
  const int64_t n = std::min(max_outputs, sounds.dim(0));
  for (int64_t i = 0; i < n; ++i) {
    pb::Summary::Value* value = summary->add_value();
    value->set_tag(max_outputs > 1 ? absl::StrCat(tag, "/audio/", i) : absl::StrCat(tag, "/audio"));
    auto* audio = value->mutable_audio();
    audio->set_sample_rate(sample_rate);
    audio->set_num_channels(channels);
    audio->set_length_frames(frames);
    audio->set_content_type("audio/wav");
    audio->set_encoded_audio_string(EncodeWav(sounds.data<float>() + i * frames * channels,
                                              static_cast<uint32_t>(frames), static_cast<uint32_t>(channels),
                                              static_cast<uint32_t>(sample_rate)));
  }
  return absl::OkStatus();
}

}  // namespace millrace
