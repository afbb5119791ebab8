// The texts of prelude.h and functors.h, in files that the build makes.
#pragma once

namespace millrace {

extern const char kProgramPrelude[];
extern const char kProgramFunctors[];

}  // namespace millrace
