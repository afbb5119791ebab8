// Writes JSON values as YAML.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace millrace::manifest {

using Json = nlohmann::ordered_json;

// The documents, separated by "---". Strings that YAML could take for something else are quoted; those of several lines
// are written as a block.
std::string ToYaml(const std::vector<Json>& documents);

}  // namespace millrace::manifest
