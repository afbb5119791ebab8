// The folder in which a keeper hands a task its certificate and key.
#pragma once

#include <string>

#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"

namespace millrace::launch {

// A folder that only this user can read, below XDG_RUNTIME_DIR, TMPDIR or /tmp. Its name is chosen at once, so that
// another process (the keeper's guard) can remove it as well; it exists after Write. Not thread-safe.
class CredentialFolder {
 public:
  CredentialFolder();

  const std::string& path() const { return path_; }
  // Creates the folder, or replaces what is in it.
  Status Write(const TlsCredentials& credentials) const;
  // Does nothing if there is no folder.
  void Remove() const;

 private:
  std::string path_;
};

}  // namespace millrace::launch
