#include "millrace/ops/io/reader.h"

#include <atomic>

#include "absl/strings/escaping.h"
#include "millrace/runtime/file_kernel.h"

namespace millrace {

// A Read in progress.
struct Reader::Reading {
  Reading(const CallingOp& op, RefPtr<Reader> reader, RefPtr<Queue> queue, int64_t n, ReadDone done)
      : op(op), reader(std::move(reader)), queue(std::move(queue)), wanted(n), done(std::move(done)) {}

  CallingOp op;
  RefPtr<Reader> reader;
  RefPtr<Queue> queue;
  int64_t wanted;
  ReadDone done;
  Records records;
  Status status;
};

Reader::Reader(std::string name, std::string kind, std::unique_ptr<RecordSource> source)
    : name_(std::move(name)),
      kind_(std::move(kind)),
      source_(std::move(source)),
      line_(absl::StrCat("reader '", name_, "'")) {}

std::string Reader::DebugString() const { return absl::StrCat(kind_, " ", name_); }

void Reader::Acquire(const CallingOp& op, Done start) {
  Attempt attempt(op, "earlier reads of");
  attempt.kind = Wait::Kind::kOther;
  attempt.run = [this](Status*) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (busy_) return Progress::kNone;
    busy_ = true;
    return Progress::kDone;
  };
  attempt.cancelled = "the read was cancelled";
  attempt.done = std::move(start);
  FinishedOps finished(op.step);
  {
    MutexLock lock(&mu_);
    line_.Join(std::move(attempt), &finished,
               [&](int64_t id) { return [self = ShareRef(this), id] { self->Cancel(id); }; });
  }
  finished.Tell(op.step);
}

void Reader::Cancel(int64_t id) {
  FinishedOps finished;
  {
    MutexLock lock(&mu_);
    if (!line_.Cancel(id, &finished)) return;
    line_.Advance(&finished);
  }
  finished.Tell(nullptr);
}

void Reader::Release() {
  FinishedOps finished;
  {
    MutexLock lock(&mu_);
    busy_ = false;
    line_.Advance(&finished);
  }
  finished.Tell(nullptr);
}

void Reader::Read(const CallingOp& op, RefPtr<Queue> queue, int64_t n, ReadDone done) {
  auto reading = std::make_shared<Reading>(op, ShareRef(this), std::move(queue), n, std::move(done));
  Acquire(op, [reading](Status status) {
    if (!status.ok()) return reading->done(std::move(status));  // access was never acquired
    GoOn(reading, [reading] { Continue(reading); });
  });
}

void Reader::GoOn(const std::shared_ptr<Reading>& reading, absl::AnyInvocable<void()> work) {
  RunWhereItMayBlock(*reading->op.step, *reading->op.origin.node,
                     absl::StrCat("a read of ", reading->reader->DebugString()), std::move(work));
}

void Reader::Continue(std::shared_ptr<Reading> reading) {
  Reader& reader = *reading->reader;
  while (reader.ReadSome(*reading)) {
    // The answer may come synchronously or later on another thread; the second of the two to arrive continues.
    struct Answer {
      std::atomic<bool> first_came{false};
      StatusOr<Queue::Tuple> unit;
    };
    auto answer = std::make_shared<Answer>();
    reading->queue->Dequeue(reading->op, [reading, answer](StatusOr<Queue::Tuple> unit) {
      answer->unit = std::move(unit);
      if (!answer->first_came.exchange(true)) return;
      GoOn(reading, [reading, answer] {
        reading->reader->BeginUnit(*reading, std::move(answer->unit));
        Continue(reading);
      });
    });
    if (!answer->first_came.exchange(true)) return;
    reader.BeginUnit(*reading, std::move(answer->unit));
  }
  Finish(std::move(reading));
}

bool Reader::ReadSome(Reading& reading) {
  Records& records = reading.records;
  bool unit_needed = false;
  reading.op.Change([&] {
    for (;;) {
      if (!reading.status.ok() || static_cast<int64_t>(records.keys.size()) >= reading.wanted) return;
      {
        MutexLock lock(&mu_);
        unit_needed = state_.work_started() == state_.work_finished();
      }
      if (unit_needed) return;
      std::string key, value;
      const StatusOr<RecordSource::Result> result = source_->Next(reading.op.step->files, &key, &value);
      if (!result.ok()) {
        reading.status = result.status();
        return;
      }
      if (*result != RecordSource::Result::kEnd) {
        records.keys.push_back(std::move(key));
        records.values.push_back(std::move(value));
      }
      MutexLock lock(&mu_);
      if (*result != RecordSource::Result::kEnd) state_.set_num_records_produced(state_.num_records_produced() + 1);
      if (*result == RecordSource::Result::kRecord) continue;
      source_->End();
      state_.set_work_finished(state_.work_started());
      if (!records.keys.empty()) return;
    }
  });
  return unit_needed;
}

void Reader::BeginUnit(Reading& reading, StatusOr<Queue::Tuple> unit) {
  reading.op.Change([&] {
    std::string work;
    if (!unit.ok()) {
      reading.status = unit.status();
    } else if (unit->size() != 1 || (*unit)[0].dtype() != DType::kString || (*unit)[0].num_elements() != 1) {
      reading.status = InvalidArgument("Expected to dequeue a one-element string tensor");
    } else {
      work = (*unit)[0].scalar<std::string>();
      reading.status = source_->Begin(reading.op.step->files, work);
    }
    MutexLock lock(&mu_);
    state_.set_current_work(work);
    if (reading.status.ok()) state_.set_work_started(state_.work_started() + 1);
  });
}

void Reader::Finish(std::shared_ptr<Reading> reading) {
  const RefPtr<Reader> reader = reading->reader;
  ReadDone done = std::move(reading->done);
  StatusOr<Records> result = std::move(reading->records);
  if (!reading->status.ok()) result = std::move(reading->status);
  const StepContext& step = *reading->op.step;
  // Must precede `done`, after which the step may no longer exist.
  reader->Release();
  if (step.file_threads == nullptr || step.inter_op == nullptr) return done(std::move(result));
  // The rest of the step does not run on a thread for files.
  step.inter_op->Schedule([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
}

void Reader::Reset(const CallingOp& op, Done done) {
  Acquire(op, [self = ShareRef(this), op, done = std::move(done)](Status status) mutable {
    if (!status.ok()) return done(std::move(status));
    op.Change([&] {
      MutexLock lock(&self->mu_);
      self->source_->End();
      self->state_.Clear();
    });
    self->Release();
    done(absl::OkStatus());
  });
}

void Reader::Restore(const CallingOp& op, const std::string& bytes, Done done) {
  if (!source_->state_is_counts()) return done(Unimplemented("Reader RestoreState"));
  pb::ReaderBaseState state;
  const std::string who = absl::StrCat(kind_, " '", name_, "': ");
  if (!state.ParseFromString(bytes)) {
    return done(InvalidArgument("Could not parse state for ", who, absl::CEscape(bytes)));
  }
  if (state.work_started() < 0 || state.work_finished() < 0 || state.num_records_produced() < 0) {
    return done(InvalidArgument("Unexpected negative value when restoring in ", who, state.ShortDebugString()));
  }
  if (state.work_started() != state.work_finished()) {
    return done(
        InvalidArgument("Inconsistent work started vs. finished when restoring in ", who, state.ShortDebugString()));
  }
  Acquire(op, [self = ShareRef(this), op, state = std::move(state), done = std::move(done)](Status status) mutable {
    if (!status.ok()) return done(std::move(status));
    op.Change([&] {
      MutexLock lock(&self->mu_);
      self->source_->End();
      self->state_ = std::move(state);
    });
    self->Release();
    done(absl::OkStatus());
  });
}

StatusOr<std::string> Reader::Serialize() const {
  if (!source_->state_is_counts()) return Unimplemented("Reader SerializeState");
  MutexLock lock(&mu_);
  return state_.SerializeAsString();
}

int64_t Reader::records_produced() const {
  MutexLock lock(&mu_);
  return state_.num_records_produced();
}

int64_t Reader::units_completed() const {
  MutexLock lock(&mu_);
  return state_.work_finished();
}

}  // namespace millrace
