// How Winograd convolutions divide images into tiles.
#pragma once

#include <algorithm>
#include <cstdint>

namespace millrace::conv::winograd {

// The size of a block of transformed and multiplied tiles, which should stay in a core's own cache.
inline constexpr int64_t kBlockBytes = 384 << 10;
// The work that is worth another thread.
inline constexpr double kPieceFlops = 8e6;
// The number of adjacent tiles that are transformed at once.
inline constexpr int64_t kMostTilesOfRun = 32;

// The distance between planes, which are padded by one cache line: a power of two would map them to the same few cache
// sets.
inline int64_t PlaneSize(int64_t floats) { return floats + 16; }

// One operand of the convolution as images that are divided into tiles.
struct Images {
  int64_t height, width, channels;
  int64_t size() const { return height * width * channels; }
};

// A convolution from images of `in` to images of `out`: forward, or back to the gradient of the input with the
// filter turned.
struct Direction {
  Images in, out;
  int64_t pad_top, pad_left;
};

// Tiles of side x side outputs of all images: rows of tiles, cut into runs, gathered into blocks of about `wanted`
// tiles.
struct Tiling {
  Tiling(int64_t batch, const Images& out, int64_t side, int64_t wanted) {
    rows = (out.height + side - 1) / side;
    columns = (out.width + side - 1) / side;
    run = std::min(columns, kMostTilesOfRun);
    runs_per_row = (columns + run - 1) / run;
    runs = batch * rows * runs_per_row;
    runs_per_block = std::max<int64_t>(1, wanted / run);
    tiles_per_block = runs_per_block * run;
  }

  // Calls fn(image, row, first column, tiles) for runs [begin, end).
  template <typename Fn>
  void ForRuns(int64_t begin, int64_t end, Fn fn) const {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t first = r % runs_per_row * run, row = r / runs_per_row;
      fn(row / rows, row % rows, first, std::min(run, columns - first));
    }
  }

  int64_t rows, columns;      // tiles of an image
  int64_t run, runs_per_row;  // tiles of a run, at most
  int64_t runs;               // of all images
  int64_t runs_per_block;
  int64_t tiles_per_block;
};

}  // namespace millrace::conv::winograd
