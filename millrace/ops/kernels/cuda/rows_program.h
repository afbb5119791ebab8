// The text of a GPU's kernels over rows that indices choose: gathers, sorting indices, updates of rows.
#pragma once

#include <string>

#include "millrace/tensor/dtype.h"

namespace millrace {

// C++ for NVRTC, complete but for options; see indexed_rows.h for what the kernels do.
struct RowsProgram {
  // GatherForm, rows, elements of a row, addresses of params, indices and results. Elements are of `bytes` bytes: 1, 2,
  // 4, 8 or 16.
  static constexpr char kGather[] = "millrace_gather";
  static std::string Gather(int bytes, DType index);

  // Number of indices, RowIndex, addresses of indices and slots.
  static constexpr char kSlots[] = "millrace_slots";
  static std::string Slots(DType index);

  // Number of slots, their address: for kSortedByBlock of a block's threads each. Then, for all threads: their number,
  // the length of sorted runs, addresses of slots and of merged ones.
  static constexpr char kSortPieces[] = "millrace_sort_pieces";
  static constexpr char kMergeRuns[] = "millrace_merge_runs";
  static constexpr int kSortedByBlock = 256;
  static std::string Sort();

  // Number of slots, elements of a row, addresses of slots and of updates, whether updates move (int), address of the
  // values.
  static constexpr char kUpdate[] = "millrace_update_rows";
  // `combine` is an expression of an element a and an update x; see CombineRows for `rounds`.
  static std::string Update(const std::string& combine, bool rounds, DType dtype);

  // Number of slots, their address, address of counts (int64).
  static constexpr char kCount[] = "millrace_count";
  // Number of slots, elements of a row, scale (int: SegmentScale), addresses of slots and of source rows, how many rows
  // x has, its address, address of the results. The second one takes counts before x.
  static constexpr char kSumChosen[] = "millrace_sum_chosen";
  static constexpr char kAddBack[] = "millrace_add_back";
  static std::string Segments(DType dtype, DType source);

  // Number of elements of `bytes` bytes, the value, address.
  static constexpr char kFill[] = "millrace_fill";
  static std::string Fill(int bytes);

  // What such texts begin with.
  static std::string Headers();
};

// The name in programs of elements of 1, 2, 4, 8 or 16 bytes whose values do not matter.
const char* ProgramBytesName(int bytes);

}  // namespace millrace
