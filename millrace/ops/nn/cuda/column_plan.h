// How sums over columns are launched on a GPU (ops/nn/cuda/columns.h). It follows from the sizes alone, and so does the
// order of the additions.
#pragma once

#include <cstdint>

namespace millrace {

struct ColumnPlan {
  // As the text of programs has it.
  struct Columns {
    int64_t columns = 0, count = 0, step = 1;
    int by_columns = 0;
  };

  // With `by_columns`, neighbouring columns are neighbours in memory; otherwise neighbouring elements of one are.
  static ColumnPlan Of(int64_t columns, int64_t count, bool by_columns);
  // The launch that joins the pieces of this one.
  ColumnPlan Join() const;

  int64_t pieces() const { return blocks[1]; }

  Columns columns;
  unsigned threads[2] = {1, 1};
  unsigned blocks[2] = {1, 1};
};

}  // namespace millrace
