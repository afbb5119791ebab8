// The text of a GPU's kernels over lines of a tensor (lines.h): ArgMax, Cumsum, TopK, InTopK, and of OneHot and bands.
#pragma once

#include <string>

#include "millrace/tensor/dtype.h"

namespace millrace {

// C++ for NVRTC, complete but for options. Elements of `bytes` bytes are 1, 2, 4, 8 or 16 bytes long.
struct LinesProgram {
  // Lines, their length, inner; addresses of elements and results. `before` is a functor: "ArgMaxBeforeFn".
  static constexpr char kBest[] = "millrace_best";
  static std::string Best(const std::string& before, DType dtype, DType out);

  // Lines, their length, inner; exclusive, reverse (int); addresses of elements and results. The first is for a thread
  // to a line, the second for a block of kLineThreads.
  static constexpr char kScanShort[] = "millrace_scan_short";
  static constexpr char kScanLong[] = "millrace_scan_long";
  static std::string Scan(const std::string& combine, const std::string& identity, DType dtype);

  // Rows and their width; the address of the places (int). Then rows, width, addresses of elements and places, of
  // kSortedByBlock threads to a block. Then rows, width, the length of sorted runs, addresses of elements, of places
  // and of merged places. Then rows, width, k, addresses of places, elements, values and indices.
  static constexpr char kPlaces[] = "millrace_places";
  static constexpr char kSortPieces[] = "millrace_sort_pieces";
  static constexpr char kMergeRuns[] = "millrace_merge_runs";
  static constexpr char kTake[] = "millrace_take";
  static std::string TopK(DType dtype, DType index);

  // Rows, their width, k; addresses of predictions, targets and results.
  static constexpr char kInTopK[] = "millrace_in_top_k";
  static std::string InTopK(DType target);

  // Outer, depth, inner; addresses of indices, on, off and results.
  static constexpr char kOneHot[] = "millrace_one_hot";
  static std::string OneHot(int bytes, DType index);

  // Matrices, their height and width, the band's widths; addresses of elements and results.
  static constexpr char kBand[] = "millrace_band";
  static std::string Band(int bytes);

  // Rows, their width; addresses of targets (int64), elements and results.
  static constexpr char kPut[] = "millrace_put";
  static std::string Put(int bytes);

  static constexpr int kLineThreads = 256;
  // What such texts begin with.
  static std::string Headers();
};

}  // namespace millrace
