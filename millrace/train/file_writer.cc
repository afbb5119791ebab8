#include "millrace/train/file_writer.h"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"
#include "millrace/io/event_writer.h"

namespace millrace {

struct FileWriter::State {
  State(std::string directory, const FileWriterOptions& options) : directory(std::move(directory)), options(options) {}

  const std::string directory;
  const FileWriterOptions options;

  mutable Mutex mu;
  CondVar changed;
  std::unique_ptr<EventWriter> writer ABSL_GUARDED_BY(mu);  // used without the lock by the thread, while `writing`
  std::deque<::tensorflow::Event> queue ABSL_GUARDED_BY(mu);
  size_t queue_bytes ABSL_GUARDED_BY(mu) = 0;
  bool writing ABSL_GUARDED_BY(mu) = false;
  bool unflushed ABSL_GUARDED_BY(mu) = false;
  int64_t flush_wanted ABSL_GUARDED_BY(mu) = 0;  // Flush number n is done when flush_done reaches n
  int64_t flush_done ABSL_GUARDED_BY(mu) = 0;
  bool closed ABSL_GUARDED_BY(mu) = false;
  bool ending ABSL_GUARDED_BY(mu) = false;
  Status status ABSL_GUARDED_BY(mu);
  int64_t dropped ABSL_GUARDED_BY(mu) = 0;

  // Last, so that it is destroyed first, when its thread has ended.
  ThreadGroup threads{"file_writer"};

  // Opens a new file.
  StatusOr<std::unique_ptr<EventWriter>> Open() const;
  void WriteLoop();
  Status WaitForFlush() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
};

StatusOr<std::unique_ptr<EventWriter>> FileWriter::State::Open() const {
  static std::atomic<int64_t> counter{0};
  const EventWriterOptions wanted = {
      .files = options.files,
      .wall_clock = options.wall_clock,
      // Other processes may create a file in the same second.
      .suffix = absl::StrCat(".", getpid(), ".", counter.fetch_add(1), options.filename_suffix)};
  return EventWriter::Create(directory, wanted);
}

// Takes the queued events and writes them without holding the lock. Flushes on request, or when the first unflushed
// event has waited for flush_every.
void FileWriter::State::WriteLoop() {
  absl::Time flush_at = absl::InfiniteFuture();
  mu.Lock();
  for (;;) {
    const bool flush_asked = flush_wanted > flush_done;
    const bool flush_due = unflushed && queue.empty() && options.clock->Now() >= flush_at;
    if (queue.empty() && !flush_asked && !flush_due) {
      if (ending) break;
      changed.WaitFor(
          &mu, unflushed ? std::max(flush_at - options.clock->Now(), absl::Milliseconds(1)) : absl::InfiniteDuration());
      continue;
    }
    std::deque<::tensorflow::Event> batch;
    batch.swap(queue);
    queue_bytes = 0;
    const int64_t flush_number = flush_wanted;
    EventWriter* const out = writer.get();
    Status result = status;
    writing = true;
    changed.SignalAll();
    mu.Unlock();
    for (::tensorflow::Event& event : batch) {
      if (result.ok()) result = out->Write(std::move(event));
    }
    const bool flush = flush_asked || flush_due || options.flush_every <= absl::ZeroDuration();
    if (flush && result.ok()) result = out->Flush();
    mu.Lock();
    writing = false;
    if (status.ok() && !result.ok()) {
      status = result;
      MR_LOG(Warning, "events are no longer written to ", out->path(), ": ", result.message());
    }
    if (flush) {
      unflushed = false;
      flush_done = std::max(flush_done, flush_number);
    } else if (!unflushed) {
      unflushed = true;
      flush_at = options.clock->Now() + options.flush_every;
    }
    changed.SignalAll();
  }
  mu.Unlock();
}

Status FileWriter::State::WaitForFlush() {
  const int64_t number = ++flush_wanted;
  changed.SignalAll();
  const absl::Time deadline = Clock::Real()->Now() + options.max_wait;
  while (flush_done < number && status.ok()) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration())
      return DeadlineExceeded("events for ", directory, " are not written after ",
                              absl::FormatDuration(options.max_wait));
    changed.WaitFor(&mu, left);
  }
  return status;
}

FileWriter::FileWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

StatusOr<std::unique_ptr<FileWriter>> FileWriter::Create(const std::string& directory,
                                                         const FileWriterOptions& options) {
  auto state = std::make_unique<State>(directory, options);
  {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<EventWriter> opened, state->Open());
    MutexLock lock(&state->mu);
    state->writer = std::move(opened);
  }
  if (!state->threads.Start([raw = state.get()] { raw->WriteLoop(); }))
    return ResourceExhausted("cannot create a thread to write events to ", directory);
  return std::unique_ptr<FileWriter>(new FileWriter(std::move(state)));
}

FileWriter::~FileWriter() {
  Close().IgnoreError();
  MutexLock lock(&state_->mu);
  state_->ending = true;
  state_->changed.SignalAll();
}

const std::string& FileWriter::directory() const { return state_->directory; }
std::string FileWriter::path() const {
  MutexLock lock(&state_->mu);
  return state_->writer->path();
}
int64_t FileWriter::dropped() const {
  MutexLock lock(&state_->mu);
  return state_->dropped;
}

Status FileWriter::AddEvent(::tensorflow::Event event) {
  if (event.wall_time() == 0)
    event.set_wall_time(absl::ToDoubleSeconds(state_->options.wall_clock->Now() - absl::UnixEpoch()));
  const size_t bytes = event.ByteSizeLong();
  const absl::Time deadline = Clock::Real()->Now() + state_->options.max_wait;
  MutexLock lock(&state_->mu);
  // An event larger than the queue's limit is accepted when the queue is empty.
  const auto full = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mu) {
    return !state_->queue.empty() && (state_->queue.size() >= state_->options.max_queue ||
                                      state_->queue_bytes + bytes > state_->options.max_queue_bytes);
  };
  while (!state_->closed && state_->status.ok() && full()) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) {
      ++state_->dropped;
      return ResourceExhausted("an event for ", state_->directory, " was dropped: ", state_->queue.size(),
                               " wait to be written, and the disk does not keep up");
    }
    state_->changed.WaitFor(&state_->mu, left);
  }
  if (state_->closed)
    return FailedPrecondition("the event file of ", state_->directory, " is closed; call Reopen to start a new one");
  MR_RETURN_IF_ERROR(state_->status);
  state_->queue_bytes += bytes;
  state_->queue.push_back(std::move(event));
  state_->changed.SignalAll();
  return absl::OkStatus();
}

Status FileWriter::AddSummary(const Tensor& summary, int64_t step) {
  if (summary.dtype() != DType::kString || summary.num_elements() != 1) {
    return InvalidArgument("a summary must be a scalar string, as summary ops return it, not ",
                           DTypeName(summary.dtype()), summary.shape().ToString());
  }
  ::tensorflow::Event event;
  event.set_step(step);
  event.set_summary(*summary.data<std::string>());
  return AddEvent(std::move(event));
}

Status FileWriter::AddSummary(const ::tensorflow::Summary& summary, int64_t step) {
  ::tensorflow::Event event;
  event.set_step(step);
  summary.SerializeToString(event.mutable_summary());
  return AddEvent(std::move(event));
}

Status FileWriter::AddScalar(absl::string_view tag, double value, int64_t step) {
  ::tensorflow::Summary summary;
  summary.add_value()->set_tag(std::string(tag));
  summary.mutable_value(0)->set_simple_value(static_cast<float>(value));
  return AddSummary(summary, step);
}

Status FileWriter::AddGraph(const Scope& scope, int64_t step) {
  MR_ASSIGN_OR_RETURN(const ::tensorflow::GraphDef graph, scope.ToGraphDef());
  return AddGraph(graph, step);
}

Status FileWriter::AddGraph(const ::tensorflow::GraphDef& graph, int64_t step) {
  ::tensorflow::Event event;
  event.set_step(step);
  graph.SerializeToString(event.mutable_graph_def());
  return AddEvent(std::move(event));
}

Status FileWriter::AddMetaGraph(const ::tensorflow::MetaGraphDef& graph, int64_t step) {
  ::tensorflow::Event event;
  event.set_step(step);
  graph.SerializeToString(event.mutable_meta_graph_def());
  return AddEvent(std::move(event));
}

Status FileWriter::AddRunMetadata(const ::tensorflow::RunMetadata& metadata, absl::string_view tag, int64_t step) {
  if (tag.empty()) return InvalidArgument("run metadata needs a tag, as in \"step 100\"");
  ::tensorflow::Event event;
  event.set_step(step);
  event.mutable_tagged_run_metadata()->set_tag(std::string(tag));
  metadata.SerializeToString(event.mutable_tagged_run_metadata()->mutable_run_metadata());
  return AddEvent(std::move(event));
}

Status FileWriter::AddSessionLog(const ::tensorflow::SessionLog& log, int64_t step) {
  ::tensorflow::Event event;
  event.set_step(step);
  *event.mutable_session_log() = log;
  return AddEvent(std::move(event));
}

Status FileWriter::Flush() {
  MutexLock lock(&state_->mu);
  if (state_->closed)
    return FailedPrecondition("the event file of ", state_->directory, " is closed; call Reopen to start a new one");
  return state_->WaitForFlush();
}

Status FileWriter::Close() {
  MutexLock lock(&state_->mu);
  if (state_->closed) return absl::OkStatus();
  state_->closed = true;
  state_->changed.SignalAll();
  MR_RETURN_IF_ERROR(state_->WaitForFlush());
  return state_->writing ? absl::OkStatus() : state_->writer->Close();
}

Status FileWriter::Reopen() {
  Close().IgnoreError();  // errors were logged before
  MR_ASSIGN_OR_RETURN(std::unique_ptr<EventWriter> opened, state_->Open());
  const absl::Time deadline = Clock::Real()->Now() + state_->options.max_wait;
  MutexLock lock(&state_->mu);
  while (state_->writing) {
    const absl::Duration left = deadline - Clock::Real()->Now();
    if (left <= absl::ZeroDuration())
      return DeadlineExceeded("a write to ", state_->writer->path(), " has not finished");
    state_->changed.WaitFor(&state_->mu, left);
  }
  if (!state_->status.ok()) {
    state_->queue.clear();
    state_->queue_bytes = 0;
  }
  state_->writer = std::move(opened);
  state_->closed = false;
  state_->status = absl::OkStatus();
  return absl::OkStatus();
}

}  // namespace millrace
