#pragma once

#include <vector>

#include "millrace/ops/fused/fused_program.h"

namespace millrace {

// Fuses steps of a program into one loop where a result has no other use. `extents` are those of the values, as far as
// they are known statically; the first `num_inputs` values are the inputs.
std::vector<FusedProgram::Step> JoinSteps(int num_inputs, const std::vector<FusedProgram::Extent>& extents,
                                          const std::vector<FusedProgram::Step>& steps);

}  // namespace millrace
