// Tensors by name: the features, labels and predictions of a model.
#pragma once

#include <map>
#include <string>

#include "millrace/api/output.h"

namespace millrace {

using OutputMap = std::map<std::string, Output>;

}  // namespace millrace
