#include "millrace/io/event_writer.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_format.h"

namespace millrace {
namespace {

constexpr char kVersion[] = "brain.Event:2";
constexpr char kWriter[] = "millrace.io.event_writer";

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace

StatusOr<std::unique_ptr<EventWriter>> EventWriter::Create(const std::string& directory,
                                                           const EventWriterOptions& options) {
  MR_RETURN_IF_ERROR(options.files->MakeDirectories(directory));
  const int64_t seconds = absl::ToUnixSeconds(options.wall_clock->Now());
  std::string path =
      JoinPath(directory, absl::StrFormat("events.out.tfevents.%010d.%s%s", seconds, HostName(), options.suffix));
  // Two writers created within the same second must not share a file.
  for (int i = 1; options.files->Exists(path).ok(); ++i) {
    path = JoinPath(directory,
                    absl::StrFormat("events.out.tfevents.%010d.%s.%d%s", seconds, HostName(), i, options.suffix));
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<RecordWriter> records, RecordWriter::Create(options.files, path));
  std::unique_ptr<EventWriter> writer(new EventWriter(std::move(path), options.wall_clock, std::move(records)));
  pb::Event first;
  first.set_wall_time(static_cast<double>(seconds));
  first.set_file_version(kVersion);
  first.mutable_source_metadata()->set_writer(kWriter);
  MR_RETURN_IF_ERROR(writer->Write(std::move(first)));
  MR_RETURN_IF_ERROR(writer->Flush());
  return writer;
}

Status EventWriter::Write(pb::Event event) {
  if (event.wall_time() == 0) event.set_wall_time(absl::ToDoubleSeconds(clock_->Now() - absl::UnixEpoch()));
  const std::string bytes = event.SerializeAsString();
  MutexLock lock(&mu_);
  if (status_.ok()) status_ = records_->Write(bytes);
  return status_;
}

Status EventWriter::WriteSummary(absl::string_view summary, int64_t step) {
  pb::Event event;
  event.set_step(step);
  event.set_summary(std::string(summary));
  return Write(std::move(event));
}

Status EventWriter::Flush() {
  MutexLock lock(&mu_);
  if (status_.ok()) status_ = records_->Flush();
  return status_;
}

Status EventWriter::Close() {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(status_);
  const Status closed = records_->Close();
  status_ = FailedPrecondition(path_, " is closed");
  return closed;
}

}  // namespace millrace
