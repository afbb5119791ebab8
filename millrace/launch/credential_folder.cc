#include "millrace/launch/credential_folder.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "millrace/base/file.h"

namespace millrace::launch {
namespace {

std::string PrivatePlace() {
  for (const char* variable : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    const char* const folder = getenv(variable);
    if (folder != nullptr && folder[0] == '/' && access(folder, W_OK | X_OK) == 0) return folder;
  }
  return "/tmp";
}

}  // namespace

CredentialFolder::CredentialFolder() {
  std::string random(12, '\0');
  if (getrandom(random.data(), random.size(), 0) < 0) random = absl::StrCat(getpid());
  path_ = JoinPath(PrivatePlace(), absl::StrCat("millrace-tls-", absl::BytesToHexString(random)));
}

Status CredentialFolder::Write(const TlsCredentials& credentials) const {
  Remove();
  // Fails if somebody else has made it.
  if (mkdir(path_.c_str(), 0700) != 0) return absl::ErrnoToStatus(errno, path_);
  return WriteTlsFolder(credentials, path_);
}

void CredentialFolder::Remove() const { FileSystem::Posix()->RemoveTree(path_).IgnoreError(); }

}  // namespace millrace::launch
