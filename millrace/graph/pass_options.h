// Options of the graph rewrites (passes) that are applied before a graph runs.
#pragma once

namespace millrace {

// Each pass can be switched off separately.
struct PassOptions {
  bool constant_folding = true;
  bool common_subexpressions = true;
  bool identity_removal = true;
  bool fusion = true;
  // Inlines function calls, and functional conditionals and loops, as plain nodes.
  bool inline_functions = true;
  bool row_reads = true;
  bool elementwise_fusion = true;

  static PassOptions None() { return {false, false, false, false, false, false, false}; }
};

}  // namespace millrace
