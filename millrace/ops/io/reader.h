// Readers: records out of the files that a queue names.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/file.h"
#include "millrace/base/mutex.h"
#include "millrace/proto/checkpoint.pb.h"
#include "millrace/runtime/blocked_ops.h"
#include "millrace/runtime/queue.h"

namespace millrace {

// How one kind of reader gets records out of a unit of work, which is the name of a file. Used by one thread at a time.
class RecordSource {
 public:
  enum class Result { kRecord, kLastRecord, kEnd };

  virtual ~RecordSource() = default;
  // Starts on a unit. `files` is good for this call only. On an error the unit is left out.
  virtual Status Begin(FileSystem* files, const std::string& work) = 0;
  // On an error the reader stays where it is.
  virtual StatusOr<Result> Next(FileSystem* files, std::string* key, std::string* value) = 0;
  // Lets go of the unit.
  virtual void End() = 0;
  // True when a reader between two units is all told by its counts.
  virtual bool state_is_counts() const { return false; }
};

// Thread-safe. Reads are served one after the other, in the order they came; nothing blocks a thread.
class Reader : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::ReaderInterface";

  struct Records {
    std::vector<std::string> keys;
    std::vector<std::string> values;
  };
  using ReadDone = absl::AnyInvocable<void(StatusOr<Records>)>;
  using Done = absl::AnyInvocable<void(Status)>;

  Reader(std::string name, std::string kind, std::unique_ptr<RecordSource> source);

  // At least one record and at most `n`, all of one unit; units are taken from `queue` as they are needed.
  // OUT_OF_RANGE when the queue is closed and empty.
  void Read(const CallingOp& op, RefPtr<Queue> queue, int64_t n, ReadDone done);
  // These wait for reads that came before.
  void Reset(const CallingOp& op, Done done);
  // INVALID_ARGUMENT for a state that makes no sense; UNIMPLEMENTED for readers whose state is more than counts.
  void Restore(const CallingOp& op, const std::string& state, Done done);
  StatusOr<std::string> Serialize() const;
  int64_t records_produced() const;
  int64_t units_completed() const;

  std::string DebugString() const override;

 private:
  struct Reading;
  // Calls `start` when nobody else is at work; whoever got in calls Release.
  void Acquire(const CallingOp& op, Done start);
  void Release();
  // Reads until it is done or has to wait for the queue.
  static void Continue(std::shared_ptr<Reading> reading);
  // True when more is to be read.
  bool ReadSome(Reading& reading);
  void BeginUnit(Reading& reading, StatusOr<Queue::Tuple> unit);
  static void Finish(std::shared_ptr<Reading> reading);
  void Cancel(int64_t id);

  const std::string name_;
  const std::string kind_;
  const std::unique_ptr<RecordSource> source_;  // of whoever is at work

  mutable Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  WaitingLine line_ ABSL_GUARDED_BY(mu_);
  // The counts, and the unit at work.
  pb::ReaderBaseState state_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
