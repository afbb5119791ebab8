#include "millrace/strategy/horovod/operation_trace.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "millrace/base/log.h"
#include "millrace/train/timeline/trace_writer.h"

namespace millrace::hvd {

StatusOr<std::unique_ptr<OperationTrace>> OperationTrace::Open(const std::string& path, absl::Time origin) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                      FileSystem::Posix()->OpenWritable(path, FileSystem::Mode::kTruncate));
  return std::unique_ptr<OperationTrace>(new OperationTrace(path, std::move(file), origin));
}

OperationTrace::OperationTrace(std::string path, std::unique_ptr<WritableFile> file, absl::Time origin)
    : path_(std::move(path)), origin_(origin), file_(std::move(file)), buffer_("[\n") {}

OperationTrace::~OperationTrace() {
  Flush();
  if (file_ != nullptr) file_->Close().IgnoreError();
}

void OperationTrace::Add(const std::string& name, const std::string& event, absl::Time begin, absl::Time end,
                         const std::string& args) {
  if (file_ == nullptr) return;
  const auto [row, is_new] = rows_.try_emplace(name, static_cast<int>(rows_.size()) + 1);
  if (is_new) {
    absl::StrAppendFormat(&buffer_,
                          "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": %s}},\n",
                          row->second, JsonText(name));
  }
  absl::StrAppendFormat(&buffer_, "{\"ph\": \"X\", \"name\": %s, \"pid\": %d, \"tid\": 0, \"ts\": %.3f, \"dur\": %.3f",
                        JsonText(event), row->second, absl::ToDoubleMicroseconds(begin - origin_),
                        absl::ToDoubleMicroseconds(end - begin));
  absl::StrAppend(&buffer_, args.empty() ? "" : absl::StrCat(", \"args\": {", args, "}"), "},\n");
}

void OperationTrace::Flush() {
  if (file_ == nullptr || buffer_.empty()) return;
  Status status = file_->Append(buffer_);
  if (status.ok()) status = file_->Flush();
  buffer_.clear();
  if (status.ok()) return;
  MR_LOG(Warning, "operations are no longer written to ", path_, ": ", status.message());
  file_.reset();
}

}  // namespace millrace::hvd
