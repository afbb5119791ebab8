// Headers that NVRTC reads, as texts, in a file that the build makes.
#pragma once

namespace millrace {

extern const char kProgramPrelude[];         // ops/kernels/cuda/prelude.h
extern const char kProgramFunctors[];        // ops/kernels/functors.h
extern const char kProgramReductions[];      // ops/kernels/cuda/reductions.h
extern const char kProgramRows[];            // ops/nn/cuda/rows.h
extern const char kProgramIndexedRows[];     // ops/kernels/cuda/indexed_rows.h
extern const char kProgramLines[];           // ops/kernels/cuda/lines.h
extern const char kProgramPhilox[];          // base/philox.h
extern const char kProgramDistributions[];   // ops/random/distributions.h
extern const char kProgramOptimizerSteps[];  // ops/training/optimizer_steps.h
extern const char kProgramColumns[];         // ops/nn/cuda/columns.h
extern const char kProgramWindows[];         // ops/nn/cuda/windows.h
extern const char kProgramConvolutions[];    // ops/nn/cuda/convolutions.h
extern const char kProgramPools[];           // ops/nn/cuda/pools.h
extern const char kProgramBatchNorms[];      // ops/nn/cuda/batch_norms.h

}  // namespace millrace
