#include "tests/golden/archive.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/strip.h"

extern char** environ;

namespace millrace::golden {
namespace {

constexpr size_t kBlock = 512;

// What `xz` makes of the file.
StatusOr<std::string> Decompressed(const std::string& path) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Internal("no pipe to xz: ", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const char* argv[] = {"xz", "-dc", "--", path.c_str(), nullptr};
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, "xz", &actions, nullptr, const_cast<char**>(argv), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string all;
  std::array<char, 1 << 16> piece;
  while (error == 0) {
    const ssize_t n = read(ends[0], piece.data(), piece.size());
    if (n > 0) all.append(piece.data(), static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno != EINTR)) break;
  }
  close(ends[0]);
  if (error != 0) return Internal("cannot start xz: ", std::strerror(error));
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || status != 0) return DataLoss("xz cannot decompress ", path);
  return all;
}

// A field of a header: text that ends at a zero byte or at the field's end.
std::string Field(absl::string_view header, size_t at, size_t size) {
  const absl::string_view field = header.substr(at, size);
  return std::string(field.substr(0, std::min(field.find('\0'), field.size())));
}

}  // namespace

StatusOr<std::map<std::string, std::string>> ReadArchive(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const std::string all, Decompressed(path));
  std::map<std::string, std::string> files;
  absl::string_view rest = all;
  // Two blocks of zeros end an archive.
  while (rest.size() >= kBlock && rest[0] != '\0') {
    const absl::string_view header = rest.substr(0, kBlock);
    rest.remove_prefix(kBlock);
    const std::string name = Field(header, 0, 100), prefix = Field(header, 345, 155);
    const size_t size = std::strtoull(Field(header, 124, 12).c_str(), nullptr, 8);
    const size_t blocks = (size + kBlock - 1) / kBlock * kBlock;
    if (header.substr(257, 5) != "ustar" || size > rest.size() || blocks > rest.size())
      return DataLoss(path, " is not an archive made by tar, or is cut off after ", files.size(), " files");
    const char type = header[156];
    if (type == '0' || type == '\0') {
      const std::string whole = prefix.empty() ? name : prefix + "/" + name;
      files[std::string(absl::StripPrefix(whole, "./"))] = std::string(rest.substr(0, size));
    } else if (type != '5') {
      return DataLoss(path, ": ", name, " has the type '", std::string(1, type), "'; only files and folders are read");
    }
    rest.remove_prefix(blocks);
  }
  return files;
}

}  // namespace millrace::golden
