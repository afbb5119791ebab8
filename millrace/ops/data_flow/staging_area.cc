#include "millrace/ops/data_flow/staging_area.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

int64_t BytesOf(const std::vector<Tensor>& values) {
  int64_t bytes = 0;
  for (const Tensor& value : values) {
    if (value.IsInitialized()) bytes += static_cast<int64_t>(value.TotalBytes());
  }
  return bytes;
}

bool IsComplete(const std::vector<Tensor>& tuple) {
  return std::all_of(tuple.begin(), tuple.end(), [](const Tensor& t) { return t.IsInitialized(); });
}

bool IsEmpty(const std::vector<Tensor>& tuple) {
  return std::none_of(tuple.begin(), tuple.end(), [](const Tensor& t) { return t.IsInitialized(); });
}

Status OutOfBounds(int64_t index, int64_t key, size_t size) {
  return InvalidArgument("Index '", index, "' for key '", key, "' was out of bounds '", size, "'.");
}

}  // namespace

StagingArea::StagingArea(Options options)
    : options_(std::move(options)),
      puts_(absl::StrCat("staging area '", options_.name, "'"), ResourceKind::kOther, WaitingLine::Order::kAny),
      gets_(absl::StrCat("staging area '", options_.name, "'"), ResourceKind::kOther, WaitingLine::Order::kAny) {}

bool StagingArea::HasRoom(int64_t bytes, bool even_alone) const {
  if (tuples_.empty() && even_alone) return true;
  if (options_.capacity > 0 && static_cast<int64_t>(tuples_.size()) >= options_.capacity) return false;
  return options_.memory_limit == 0 || bytes_ + bytes <= options_.memory_limit;
}

void StagingArea::Put(const CallingOp& op, std::vector<Tensor> values, PutDone done) {
  const int64_t bytes = BytesOf(values);
  if (options_.memory_limit > 0 && bytes > options_.memory_limit) {
    return done(ResourceExhausted("Attempted to insert tensors with combined size of '", bytes,
                                  "' bytes into Staging Area with a memory limit of '", options_.memory_limit, "'."));
  }
  Attempt attempt(op, "room in");
  attempt.kind = Wait::Kind::kRoom;
  attempt.run = [this, bytes, values = std::move(values)](Status*) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) mutable {
    if (!HasRoom(bytes, /*even_alone=*/false)) return Progress::kNone;
    bytes_ += bytes;
    tuples_.emplace(next_key_++, std::move(values));
    return Progress::kDone;
  };
  attempt.cancelled = "Stage operation was cancelled";
  attempt.done = std::move(done);
  Submit(/*puts=*/true, std::move(attempt));
}

void StagingArea::PutAt(const CallingOp& op, int64_t key, std::vector<int32_t> components, std::vector<Tensor> values,
                        PutDone done) {
  Attempt attempt(op, "room in");
  attempt.kind = Wait::Kind::kRoom;
  attempt.run = [this, key, components = std::move(components), values = std::move(values)](Status* result)
                    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) mutable { return TryPutAt(key, components, &values, result); };
  attempt.cancelled = "MapStage operation was cancelled";
  attempt.done = std::move(done);
  Submit(/*puts=*/true, std::move(attempt));
}

Progress StagingArea::TryPutAt(int64_t key, const std::vector<int32_t>& components, std::vector<Tensor>* values,
                               Status* result) {
  std::vector<Tensor> tuple(static_cast<size_t>(options_.num_components));
  const auto known = incomplete_.find(key);
  if (known != incomplete_.end()) tuple = known->second;
  for (size_t i = 0; i < components.size(); ++i) {
    const int64_t c = components[i];
    if (c < 0 || c >= options_.num_components) {
      *result = OutOfBounds(c, key, tuple.size());
      return Progress::kDone;
    }
    if (tuple[c].IsInitialized()) {
      *result = InvalidArgument("The tensor for index '", c, "' for key '", key, "' was already initialized '",
                                tuple.size(), "'.");
      return Progress::kDone;
    }
    tuple[c] = (*values)[i];
  }
  const bool complete = IsComplete(tuple);
  if (complete && !HasRoom(BytesOf(tuple), /*even_alone=*/true)) return Progress::kNone;
  if (!complete) {
    incomplete_[key] = std::move(tuple);
    return Progress::kDone;
  }
  if (known != incomplete_.end()) incomplete_.erase(known);
  const int64_t bytes = BytesOf(tuple);
  if (tuples_.emplace(key, std::move(tuple)).second) bytes_ += bytes;
  return Progress::kDone;
}

StagingArea::Tuples::iterator StagingArea::FindTuple(const Request& request) {
  switch (request.by) {
    case Request::By::kKey:
      return tuples_.find(request.number);
    case Request::By::kFirst:
      return tuples_.begin();
    case Request::By::kPosition:
      break;
  }
  if (request.number >= static_cast<int64_t>(tuples_.size())) return tuples_.end();
  return std::next(tuples_.begin(), static_cast<std::ptrdiff_t>(request.number));
}

Progress StagingArea::TryGet(const Request& request, Item* item, Status* result) {
  const auto at = FindTuple(request);
  if (at == tuples_.end()) return Progress::kNone;
  item->key = at->first;
  std::vector<Tensor>& tuple = at->second;
  std::vector<int32_t> components = request.components;
  if (request.whole) {
    for (size_t c = 0; c < tuple.size(); ++c) components.push_back(static_cast<int32_t>(c));
  }
  for (const int32_t c : components) {
    if (c < 0 || c >= static_cast<int64_t>(tuple.size())) {
      *result = OutOfBounds(c, at->first, tuple.size());
    } else if (!tuple[c].IsInitialized()) {
      *result = InvalidArgument("Tensor at index '", c, "' for key '", at->first, "' has already been removed.");
    }
    if (!result->ok()) return Progress::kDone;
  }
  for (const int32_t c : components) item->values.push_back(tuple[c]);
  if (!request.remove) return Progress::kDone;
  for (const int32_t c : components) tuple[c] = Tensor();
  bytes_ -= BytesOf(item->values);
  if (IsEmpty(tuple)) tuples_.erase(at);
  return Progress::kDone;
}

void StagingArea::Get(const CallingOp& op, Request request, GetDone done) {
  if (request.by == Request::By::kPosition && request.number < 0) {
    return done(InvalidArgument("there is no tuple at position ", request.number));
  }
  auto item = std::make_shared<Item>();
  Attempt attempt(op, "a tuple of");
  attempt.run = [this, item, request = std::move(request)](Status* result)
                    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return TryGet(request, item.get(), result); };
  attempt.cancelled = "Unstage operation was cancelled";
  attempt.done = [item, done = std::move(done)](Status status) mutable {
    if (!status.ok()) return done(std::move(status));
    done(std::move(*item));
  };
  Submit(/*puts=*/false, std::move(attempt));
}

void StagingArea::Clear(const CallingOp& op) {
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    tuples_.clear();
    incomplete_.clear();
    bytes_ = 0;
    Flush(&finished);
  });
  finished.Tell(nullptr);
}

int64_t StagingArea::size() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(tuples_.size());
}

int64_t StagingArea::incomplete_size() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(incomplete_.size());
}

std::string StagingArea::DebugString() const {
  MutexLock lock(&mu_);
  return absl::StrCat("staging area '", options_.name, "': ", tuples_.size(), " tuples of ", bytes_, " bytes, ",
                      incomplete_.size(), " incomplete");
}

void StagingArea::Submit(bool puts, Attempt attempt) {
  const CallingOp op = attempt.op;
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    const bool changed = (puts ? puts_ : gets_).Join(std::move(attempt), &finished, [&](int64_t id) {
      return [self = ShareRef(this), puts, id] { self->Cancel(puts, id); };
    });
    if (changed) Flush(&finished);
  });
  finished.Tell(op.step);
}

void StagingArea::Cancel(bool puts, int64_t id) {
  FinishedOps finished;
  {
    MutexLock lock(&mu_);
    (puts ? puts_ : gets_).Cancel(id, &finished);
  }
  finished.Tell(nullptr);
}

void StagingArea::Flush(FinishedOps* finished) {
  bool changed = true;
  while (changed) {
    changed = puts_.Advance(finished);
    changed |= gets_.Advance(finished);
  }
}

}  // namespace millrace
