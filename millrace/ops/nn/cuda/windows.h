// Windows that slide over images, on a GPU. NVRTC reads it as text, behind prelude.h; nothing else includes it.
#pragma once

namespace millrace {

// As ops/nn/window.h has it.
struct WindowDim {
  int64_t in, window, stride, dilation, pad_before, pad_after, out;
};

// What is sliced at output `at` of one dimension, without dilation: [begin, end) of the input.
struct WindowRange {
  int64_t begin, end;
};
__device__ inline WindowRange RangeAt(const WindowDim& d, int64_t at) {
  const int64_t start = at * d.stride - d.pad_before, stop = start + d.window;
  return {start < 0 ? 0 : start, stop < d.in ? stop : d.in};
}

// The outputs [begin, end) whose windows, without dilation, have input `at`.
__device__ inline WindowRange WindowsWith(const WindowDim& d, int64_t at) {
  const int64_t last = (at + d.pad_before) / d.stride, room = at + d.pad_before - d.window;
  const int64_t first = room < 0 ? 0 : room / d.stride + 1;
  return {first, last + 1 < d.out ? last + 1 : d.out};
}

__device__ inline int64_t InPixels(const WindowDim* dim) { return dim[0].in * dim[1].in * dim[2].in; }
__device__ inline int64_t OutPixels(const WindowDim* dim) { return dim[0].out * dim[1].out * dim[2].out; }

// An element of images: which image, pixel and channel, from where it is in memory, and back.
struct ImageElement {
  int64_t image, pixel, channel;

  __device__ ImageElement(int64_t at, int64_t channels, int64_t pixels, bool channels_first) {
    const int64_t inner = channels_first ? pixels : channels, outer = channels_first ? channels : pixels;
    const int64_t row = at / inner, column = at - row * inner;
    image = row / outer;
    const int64_t rest = row - image * outer;
    pixel = channels_first ? column : rest;
    channel = channels_first ? rest : column;
  }
};
__device__ inline int64_t ElementAt(int64_t image, int64_t pixel, int64_t channel, int64_t channels, int64_t pixels,
                                    bool channels_first) {
  return channels_first ? (image * channels + channel) * pixels + pixel : (image * pixels + pixel) * channels + channel;
}

}  // namespace millrace
