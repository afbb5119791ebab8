// The difference of two JSON documents as a merge patch (RFC 7396).
#pragma once

#include "nlohmann/json.hpp"

namespace millrace::dashboard {

// The patch that makes `after` of `before`; an empty object if they are equal. Both are objects without null members,
// since in a patch null removes a member. Arrays are replaced as a whole.
nlohmann::json MergePatch(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace millrace::dashboard
