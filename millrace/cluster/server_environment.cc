#include "millrace/cluster/server_environment.h"

#include <cstdlib>
#include <cstring>

namespace millrace {

bool InsecureByEnvironment() {
  const char* const value = std::getenv(kInsecureVariable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

}  // namespace millrace
