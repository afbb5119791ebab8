#pragma once

namespace millrace {

// The version of the library, which `millrace --version` prints: "0.1.0" for a release, with a suffix otherwise, as in
// "0.1.0-rc1", "0.1.0-hotfix1" or "0.1.0-nightly20261118.1a2b3c4" (RELEASING.md).
const char* Version();

}  // namespace millrace
