// Readers: produce records from the files whose names come from a queue.
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

// Reads the records of a unit of work, which is a file name; one subclass per kind of reader. Not thread-safe.
class RecordSource {
 public:
  enum class Result { kRecord, kLastRecord, kEnd };

  virtual ~RecordSource() = default;
  // Starts a unit. `files` is valid for this call only. On an error the unit is skipped.
  virtual Status Begin(FileSystem* files, const std::string& work) = 0;
  // On an error the position is unchanged.
  virtual StatusOr<Result> Next(FileSystem* files, std::string* key, std::string* value) = 0;
  // Closes the unit.
  virtual void End() = 0;
  // True if the counts are the complete state of a reader between two units.
  virtual bool state_is_counts() const { return false; }
};

// Thread-safe. Reads are served one at a time in FIFO order; calls are non-blocking.
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

  // Reads at least one and at most `n` records of one unit; units are dequeued from `queue` as needed. OUT_OF_RANGE if
  // the queue is closed and empty.
  void Read(const CallingOp& op, RefPtr<Queue> queue, int64_t n, ReadDone done);
  // These run after earlier reads.
  void Reset(const CallingOp& op, Done done);
  // INVALID_ARGUMENT for an invalid state; UNIMPLEMENTED for readers whose state is more than counts.
  void Restore(const CallingOp& op, const std::string& state, Done done);
  StatusOr<std::string> Serialize() const;
  int64_t records_produced() const;
  int64_t units_completed() const;

  std::string DebugString() const override;

 private:
  struct Reading;
  // Calls `start` with exclusive access to the reader; the holder must call Release.
  void Acquire(const CallingOp& op, Done start);
  void Release();
  // Runs `work` where it may block.
  static void GoOn(const std::shared_ptr<Reading>& reading, absl::AnyInvocable<void()> work);
  // Reads until done, or until it has to wait for the queue.
  static void Continue(std::shared_ptr<Reading> reading);
  // Returns true if there is more to read.
  bool ReadSome(Reading& reading);
  void BeginUnit(Reading& reading, StatusOr<Queue::Tuple> unit);
  static void Finish(std::shared_ptr<Reading> reading);
  void Cancel(int64_t id);

  const std::string name_;
  const std::string kind_;
  const std::unique_ptr<RecordSource> source_;  // used by the holder of exclusive access only

  mutable Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  WaitingLine line_ ABSL_GUARDED_BY(mu_);
  // The counts and the current unit.
  pb::ReaderBaseState state_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
