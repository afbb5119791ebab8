// The environment variables in which `millrace launch --profile_steps` tells programs which global steps to trace
// ("100", or "100:105" with the end excluded) and in which directory to write the timeline's parts.
#pragma once

namespace millrace {

inline constexpr char kProfileStepsVariable[] = "MILLRACE_PROFILE_STEPS";
inline constexpr char kProfileDirVariable[] = "MILLRACE_PROFILE_DIR";

}  // namespace millrace
