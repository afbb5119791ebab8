#include "millrace/dashboard/merge_patch.h"

namespace millrace::dashboard {

using nlohmann::json;

json MergePatch(const json& before, const json& after) {
  json patch = json::object();
  for (const auto& [key, value] : after.items()) {
    const auto old = before.find(key);
    if (old == before.end()) {
      patch[key] = value;
    } else if (value.is_object() && old->is_object()) {
      if (json inner = MergePatch(*old, value); !inner.empty()) patch[key] = std::move(inner);
    } else if (*old != value) {
      patch[key] = value;
    }
  }
  for (const auto& [key, value] : before.items()) {
    if (!after.contains(key)) patch[key] = nullptr;
  }
  return patch;
}

}  // namespace millrace::dashboard
