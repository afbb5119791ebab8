// The environment variables that say who may use a task's server; `millrace launch` and `millrace place` set them for
// programs. server_access.h puts them together with ServerOptions.
#pragma once

namespace millrace {

inline constexpr char kInsecureVariable[] = "MILLRACE_INSECURE";
inline constexpr char kFileRootVariable[] = "MILLRACE_FILE_ROOT";

// True if MILLRACE_INSECURE is set to something else than 0.
bool InsecureByEnvironment();

}  // namespace millrace
