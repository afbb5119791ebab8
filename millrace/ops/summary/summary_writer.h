// An event file writer that persists across steps.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/mutex.h"
#include "millrace/io/event_writer.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {

// Thread-safe. Events are flushed if more than `max_queue` are pending or the last flush was `flush_interval` ago.
class SummaryWriter : public Resource {
 public:
  static constexpr char kTypeName[] = "N10tensorflow22SummaryWriterInterfaceE";

  SummaryWriter(std::unique_ptr<EventWriter> events, int64_t max_queue, absl::Duration flush_interval)
      : events_(std::move(events)), max_queue_(max_queue), flush_interval_(flush_interval) {}

  Status Write(pb::Event event);
  Status Flush();
  // Flushes, then closes. No other call may follow.
  Status Close() { return events_->Close(); }
  std::string DebugString() const override { return "SummaryWriter " + events_->path(); }

 private:
  const std::unique_ptr<EventWriter> events_;
  const int64_t max_queue_;
  const absl::Duration flush_interval_;
  Mutex mu_;
  int64_t queued_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time flushed_ ABSL_GUARDED_BY(mu_) = Clock::Real()->Now();
};

}  // namespace millrace
