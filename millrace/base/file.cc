#include "millrace/base/file.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/base/log.h"

namespace millrace {

StatusOr<std::string> ReadWholeFile(FileSystem* files, const std::string& path) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, files->OpenSequential(path));
  std::string content;
  // The size is only a hint: special files report none, and regular files may grow.
  const StatusOr<uint64_t> hint = files->FileSize(path);
  size_t piece = std::min<uint64_t>(hint.ok() ? *hint + 1 : 0, uint64_t{1} << 30);
  for (;;) {
    piece = std::max<size_t>(piece, 4096);
    const size_t before = content.size();
    content.resize(before + piece);
    MR_ASSIGN_OR_RETURN(const size_t got, file->Read(piece, content.data() + before));
    content.resize(before + got);
    if (got < piece) return content;
    piece = content.size();
  }
}

Status ReplaceFile(FileSystem* files, const std::string& path, absl::string_view content) {
  static std::atomic<uint64_t> counter{0};
  const std::string temporary = absl::StrCat(path, ".tmp", counter.fetch_add(1));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files->OpenWritable(temporary));
  Status status = file->Append(content);
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = file->Close();
  if (status.ok()) status = files->Rename(temporary, path);
  if (!status.ok()) files->Remove(temporary).IgnoreError();
  return status;
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  if (directory.empty() || (!name.empty() && name.front() == '/')) return std::string(name);
  return absl::StrCat(directory, directory.back() == '/' ? "" : "/", name);
}

std::string DirectoryOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

StatusOr<TempDirectory> TempDirectory::Make(absl::string_view prefix, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(std::string path, files->MakeTempDirectory(prefix));
  return TempDirectory(files, std::move(path));
}

TempDirectory::TempDirectory(TempDirectory&& other) noexcept
    : files_(other.files_), path_(std::exchange(other.path_, "")) {}

TempDirectory::~TempDirectory() {
  if (path_.empty()) return;
  const Status status = files_->RemoveTree(path_);
  if (!status.ok()) MR_LOG(Warning, "cannot remove a temporary directory: ", status.message());
}

}  // namespace millrace
