#include "millrace/strategy/horovod/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "millrace/base/log.h"
#include "millrace/base/varint.h"

namespace millrace::hvd {

using Kind = NamedCollective::Kind;
using collective::Reduction;

Engine::Engine(EngineOptions options) : options_(std::move(options)) {}

StatusOr<std::shared_ptr<Engine>> Engine::Start(MakeCarrier make, EngineOptions options) {
  std::shared_ptr<Engine> engine(new Engine(std::move(options)));
  Engine* const self = engine.get();
  if (!self->thread_.Start([self, make = std::move(make)]() mutable { self->Run(std::move(make)); }))
    return ResourceExhausted("cannot create a thread for hvd");
  self->started_.Wait();
  MR_RETURN_IF_ERROR(self->start_status_);
  MutexLock lock(&self->mu_);
  self->WatchForStalls();
  return engine;
}

Engine::~Engine() {
  TimerQueue::Id timer;
  {
    MutexLock lock(&mu_);
    stop_ = true;
    timer = timer_;
    work_.SignalAll();
  }
  if (timer != 0) TimerQueue::Real()->Cancel(timer);
}

// ---- Callers

void Engine::Submit(NamedCollective operation, Done done) {
  StatusOr<Announcement> what = AnnouncementOf(operation, size_);
  Status refused = what.status();
  if (refused.ok()) {
    MutexLock lock(&mu_);
    if (!failed_.ok()) {
      refused = failed_;
    } else if (shutdown_) {
      refused = FailedPrecondition(KindName(operation.kind), " '", operation.name, "': hvd::Shutdown has been called");
    } else if (join_ != nullptr) {
      refused = FailedPrecondition(KindName(operation.kind), " '", operation.name,
                                   "': this rank has joined, and waits for the others");
    } else if (const auto [it, is_new] = by_name_.try_emplace(what->name, next_id_); !is_new) {
      refused = InvalidArgument(KindName(operation.kind), " '", operation.name,
                                "': this rank has another operation of ", "that name in flight");
    } else {
      pending_.emplace(next_id_++, Pending{.what = *std::move(what),
                                           .tensor = std::move(operation.tensor),
                                           .done = std::move(done),
                                           .since = clock_->Now()});
      fresh_ = true;
      work_.SignalAll();
      return;
    }
  }
  done(std::move(refused));
}

StatusOr<Tensor> Engine::SubmitAndWait(NamedCollective operation) {
  Notification over;
  StatusOr<Tensor> result;
  Submit(std::move(operation), [&](StatusOr<Tensor> given) {
    result = std::move(given);
    over.Notify();
  });
  over.Wait();
  return result;
}

StatusOr<int> Engine::Join() {
  Notification over;
  StatusOr<int> result = -1;
  {
    MutexLock lock(&mu_);
    if (!failed_.ok()) return failed_;
    if (shutdown_) return FailedPrecondition("join: hvd::Shutdown has been called");
    if (join_ != nullptr) return FailedPrecondition("join: this rank has joined already");
    join_ = [&](StatusOr<int> last) {
      result = std::move(last);
      over.Notify();
    };
    join_announced_ = false;
    work_.SignalAll();
  }
  over.Wait();
  return result;
}

Status Engine::Shutdown() {
  {
    MutexLock lock(&mu_);
    shutdown_ = true;
    work_.SignalAll();
  }
  ended_.Wait();
  return end_status_;
}

// ---- The engine's thread

void Engine::Run(MakeCarrier make) {
  auto made = make();
  if (made.ok()) {
    carrier_ = *std::move(made);
    rank_ = carrier_->rank();
    size_ = carrier_->size();
    local_rank_ = carrier_->local_rank();
    local_size_ = carrier_->local_size();
    table_ = std::make_unique<ReadyTable>(size_, options_.cache_capacity);
    if (!options_.timeline.empty() && rank_ == 0) {
      auto trace = OperationTrace::Open(options_.timeline, clock_->Now());
      if (trace.ok()) trace_ = *std::move(trace);
      start_status_ = trace.status();
    }
  } else {
    start_status_ = made.status();
  }
  const bool works = start_status_.ok();
  started_.Notify();
  if (works) {
    end_status_ = Loop();
    FailAll(end_status_.ok() ? FailedPrecondition("hvd has been shut down") : end_status_);
    if (end_status_.ok()) end_status_ = carrier_->Leave();
  }
  trace_.reset();
  {
    MutexLock lock(&mu_);
    carrier_.reset();
  }
  ended_.Notify();
}

Status Engine::Loop() {
  bool progress = true;
  while (AwaitWork(progress)) {
    bool all_leave = false;
    MR_ASSIGN_OR_RETURN(progress, Round(&all_leave));
    if (trace_ != nullptr) trace_->Flush();
    if (all_leave) return absl::OkStatus();
  }
  return absl::CancelledError("hvd was destroyed without hvd::Shutdown");
}

// Returns false if the engine is being destroyed.
bool Engine::AwaitWork(bool progress) {
  MutexLock lock(&mu_);
  while (!stop_ && pending_.empty() && join_ == nullptr && !shutdown_) work_.Wait(&mu_);
  // Something is pending here that is not pending everywhere.
  if (!stop_ && !progress && !fresh_ && join_ == nullptr && !shutdown_) work_.WaitFor(&mu_, options_.cycle_time);
  return !stop_;
}

// What this rank says in a round, one byte for each of: the ranks (0: it leaves), whether it has a report (0: yes), the
// slots (1: submitted). The minimum over all ranks says who leaves, whether anyone has a report, and which slots all
// ranks have submitted.
Tensor Engine::Signs(Report* report) {
  MutexLock lock(&mu_);
  fresh_ = false;
  const auto slots = static_cast<int64_t>(table_->num_slots());
  Tensor signs(DType::kUInt8, Shape({size_ + 1 + slots}));
  uint8_t* const of_ranks = signs.data<uint8_t>();
  uint8_t* const of_slots = of_ranks + size_ + 1;
  std::fill_n(of_ranks, size_ + 1, 1);
  std::fill_n(of_slots, slots, table_->joined(rank_) ? 1 : 0);
  for (auto& [id, pending] : pending_) {
    if (pending.announced) continue;
    const int slot = pending.stalled ? -1 : table_->FindSlot(pending.what);
    if (slot >= 0) {
      of_slots[slot] = 1;
    } else {
      report->announcements.push_back(pending.what);
      pending.announced = true;
    }
  }
  // What was submitted before the end comes first.
  if (pending_.empty() && join_ != nullptr && !join_announced_) report->joins = join_announced_ = true;
  if (pending_.empty() && join_ == nullptr && shutdown_) of_ranks[rank_] = 0;
  if (!report->announcements.empty() || report->joins) of_ranks[size_] = 0;
  return signs;
}

StatusOr<bool> Engine::Round(bool* all_leave) {
  Report report;
  Tensor signs = Signs(&report);
  MR_RETURN_IF_ERROR(carrier_->AllReduce(&signs, Reduction::kMin));
  const uint8_t* const of_ranks = signs.data<uint8_t>();
  std::vector<Decision> decisions;
  for (size_t slot = 0; slot < table_->num_slots(); ++slot) {
    if (of_ranks[static_cast<size_t>(size_) + 1 + slot] == 0) continue;
    if (std::optional<Decision> decision = table_->DecideSlot(slot)) decisions.push_back(*std::move(decision));
  }
  if (of_ranks[size_] == 0) {
    MR_RETURN_IF_ERROR(AddReports(report));
    for (Decision& decision : table_->TakeReady()) decisions.push_back(std::move(decision));
  }
  MR_RETURN_IF_ERROR(Execute(decisions));
  bool progress = !decisions.empty();
  if (const std::optional<int> last = table_->TakeJoin()) {
    FinishJoin(*last);
    progress = true;
  }
  const uint8_t* const leaver = std::find(of_ranks, of_ranks + size_, 0);
  *all_leave = std::count(of_ranks, of_ranks + size_, 0) == size_;
  if (leaver != of_ranks + size_ && !*all_leave)
    FailAll(Unavailable("rank ", leaver - of_ranks, " has called hvd::Shutdown"));
  NoteMissing();
  return progress;
}

Status Engine::AddReports(const Report& own) {
  const std::string text = EncodeReport(own);
  std::string framed;
  PutVarint(&framed, text.size());
  framed += text;
  Tensor bytes(DType::kUInt8, Shape({static_cast<int64_t>(framed.size())}));
  std::memcpy(bytes.raw_data(), framed.data(), framed.size());
  MR_ASSIGN_OR_RETURN(const Tensor all, carrier_->AllGather(bytes));
  absl::string_view rest(static_cast<const char*>(all.raw_data()), all.TotalBytes());
  for (int rank = 0; rank < size_; ++rank) {
    uint64_t length = 0;
    if (!TakeVarint(&rest, &length) || length > rest.size())
      return InvalidArgument("rank ", rank, " has sent a report that is too short");
    MR_ASSIGN_OR_RETURN(const Report report, DecodeReport(rest.substr(0, length)));
    rest.remove_prefix(length);
    table_->Add(rank, report);
  }
  return absl::OkStatus();
}

// ---- Operations

Status Engine::Execute(const std::vector<Decision>& decisions) {
  for (size_t i = 0; i < decisions.size();) {
    const Decision& decision = decisions[i];
    if (!decision.status.ok()) {
      Finish(decision.what.name, decision.status);
      ++i;
    } else if (decision.what.kind == Kind::kAllgather) {
      MR_RETURN_IF_ERROR(ExecuteAllgather(decision.what));
      ++i;
    } else {
      const size_t count = FusedWith(decisions, i);
      MR_RETURN_IF_ERROR(ExecuteFused(&decision, count));
      i += count;
    }
  }
  return absl::OkStatus();
}

namespace {

size_t BytesOf(const Announcement& what) {
  return static_cast<size_t>(Shape(what.dims).num_elements()) * SizeOf(what.dtype);
}

std::string EventName(const Announcement& what) { return absl::AsciiStrToUpper(KindName(what.kind)); }

std::string TensorArgs(const Announcement& what, size_t fused) {
  return absl::StrCat("\"dtype\": \"", DTypeName(what.dtype), "\", \"shape\": \"[", absl::StrJoin(what.dims, ","),
                      "]\", \"fused\": ", fused);
}

}  // namespace

size_t Engine::FusedWith(const std::vector<Decision>& decisions, size_t first) const {
  const Announcement& what = decisions[first].what;
  size_t bytes = BytesOf(what), count = 1;
  for (; first + count < decisions.size(); ++count) {
    const Decision& next = decisions[first + count];
    if (!next.status.ok() || next.what.kind != what.kind || next.what.dtype != what.dtype ||
        next.what.reduction != what.reduction || next.what.root != what.root)
      break;
    bytes += BytesOf(next.what);
    if (bytes > options_.fusion_bytes) break;
  }
  return count;
}

StatusOr<Tensor> Engine::TakeTensor(const Announcement& what) {
  const absl::Time now = clock_->Now();
  {
    MutexLock lock(&mu_);
    const auto it = by_name_.find(what.name);
    if (it != by_name_.end()) {
      Pending& pending = pending_.at(it->second);
      if (trace_ != nullptr) trace_->Add(what.name, absl::StrCat("NEGOTIATE_", EventName(what)), pending.since, now);
      return std::move(pending.tensor);
    }
  }
  if (!table_->joined(rank_))
    return Internal("the ranks have agreed on ", Describe(what), ", which is not pending here");
  Shape shape(what.dims);
  if (what.kind == Kind::kAllgather) shape.set_dim(0, 0);
  MR_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Make(what.dtype, shape));
  if (zeros.TotalBytes() > 0) std::memset(zeros.raw_data(), 0, zeros.TotalBytes());
  return zeros;
}

Status Engine::Exchange(const Announcement& what, Tensor* tensor) {
  return what.kind == Kind::kBroadcast ? carrier_->Broadcast(tensor, what.root)
                                       : carrier_->AllReduce(tensor, what.reduction);
}

Status Engine::ExecuteAllgather(const Announcement& what) {
  MR_ASSIGN_OR_RETURN(const Tensor own, TakeTensor(what));
  const absl::Time begin = clock_->Now();
  StatusOr<Tensor> all = carrier_->AllGather(own);
  if (trace_ != nullptr) trace_->Add(what.name, EventName(what), begin, clock_->Now(), TensorArgs(what, 1));
  const Status status = all.status();
  if (status.ok()) Finish(what.name, std::move(all));
  return status;
}

StatusOr<Tensor> Engine::TakeFusionBuffer(DType dtype, int64_t elements) {
  const int64_t bytes = elements * static_cast<int64_t>(SizeOf(dtype));
  if (!fusion_buffer_.IsInitialized() || fusion_buffer_.num_elements() < bytes) {
    fusion_buffer_.Reset();
    MR_ASSIGN_OR_RETURN(fusion_buffer_, Tensor::Make(DType::kUInt8, Shape({bytes})));
  }
  fusion_capacity_ = fusion_buffer_.num_elements();
  Tensor buffer = fusion_buffer_.ViewAs(dtype, Shape({elements}));
  fusion_buffer_.Reset();
  return buffer;
}

void Engine::ReturnFusionBuffer(const Tensor& buffer) {
  fusion_buffer_ = buffer.ViewAs(DType::kUInt8, Shape({fusion_capacity_}));
}

Status Engine::ExecuteFused(const Decision* first, size_t count) {
  std::vector<Tensor> tensors;
  int64_t elements = 0;
  for (size_t i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(first[i].what));
    elements += tensor.num_elements();
    tensors.push_back(std::move(tensor));
  }
  const auto note = [&](const std::string& event, absl::Time begin, const std::string& args = "") {
    const absl::Time end = clock_->Now();
    for (size_t i = 0; trace_ != nullptr && i < count; ++i) trace_->Add(first[i].what.name, event, begin, end, args);
  };
  Tensor buffer;
  absl::Time begin = clock_->Now();
  if (count == 1) {
    buffer = std::move(tensors[0]);
  } else {
    MR_ASSIGN_OR_RETURN(buffer, TakeFusionBuffer(first->what.dtype, elements));
    char* to = static_cast<char*>(buffer.raw_data());
    for (const Tensor& tensor : tensors) {
      if (tensor.TotalBytes() > 0) std::memcpy(to, tensor.raw_data(), tensor.TotalBytes());
      to += tensor.TotalBytes();
    }
    note("MEMCPY_IN_FUSION_BUFFER", begin);
    begin = clock_->Now();
  }
  MR_RETURN_IF_ERROR(Exchange(first->what, &buffer));
  note(EventName(first->what), begin, TensorArgs(first->what, count));
  if (count == 1) {
    Finish(first->what.name, std::move(buffer));
    return absl::OkStatus();
  }
  // The results get memory of their own: parts of the buffer would keep all of it alive, and are not aligned.
  begin = clock_->Now();
  const char* from = static_cast<const char*>(buffer.raw_data());
  for (Tensor& tensor : tensors) {
    if (!tensor.RefCountIsOne()) {
      MR_ASSIGN_OR_RETURN(tensor, Tensor::Make(tensor.dtype(), tensor.shape()));
    }
    if (tensor.TotalBytes() > 0) std::memcpy(tensor.raw_data(), from, tensor.TotalBytes());
    from += tensor.TotalBytes();
  }
  ReturnFusionBuffer(buffer);
  note("MEMCPY_OUT_FUSION_BUFFER", begin);
  for (size_t i = 0; i < count; ++i) Finish(first[i].what.name, std::move(tensors[i]));
  return absl::OkStatus();
}

void Engine::Finish(const std::string& name, StatusOr<Tensor> result) {
  Done done;
  {
    MutexLock lock(&mu_);
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) return;  // this rank has joined
    done = std::move(pending_.at(it->second).done);
    pending_.erase(it->second);
    by_name_.erase(it);
  }
  done(std::move(result));
}

void Engine::FinishJoin(StatusOr<int> result) {
  JoinDone done;
  {
    MutexLock lock(&mu_);
    done = std::exchange(join_, nullptr);
  }
  if (done != nullptr) done(std::move(result));
}

void Engine::FailAll(const Status& why) {
  std::map<uint64_t, Pending> pending;
  {
    MutexLock lock(&mu_);
    if (failed_.ok()) failed_ = why;
    pending.swap(pending_);
    by_name_.clear();
  }
  for (auto& [id, operation] : pending) operation.done(why);
  FinishJoin(why);
}

// ---- Stalls

void Engine::NoteMissing() {
  MutexLock lock(&mu_);
  for (auto& [id, pending] : pending_) {
    if (pending.announced) pending.missing = table_->Missing(pending.what.name);
  }
}

void Engine::WatchForStalls() {
  if (!stop_ && failed_.ok()) timer_ = TimerQueue::Real()->Schedule(options_.stall_warning, [this] { NameStalls(); });
}

void Engine::NameStalls() {
  std::string line;
  {
    MutexLock lock(&mu_);
    WatchForStalls();
    const absl::Time now = clock_->Now();
    size_t stalled = 0;
    for (auto& [id, pending] : pending_) {
      if (now - pending.since < options_.stall_warning) break;
      // It is announced in the next round, after which the ranks that have not submitted it are known.
      pending.stalled = true;
      ++stalled;
    }
    if (stalled == 0) return;
    const Pending& oldest = pending_.begin()->second;
    std::string whom = carrier_ == nullptr ? "" : carrier_->Awaited();
    if (!oldest.missing.empty()) whom = absl::StrCat("rank ", absl::StrJoin(oldest.missing, ", rank "));
    line = absl::StrCat("hvd: ", Describe(oldest.what), stalled > 1 ? absl::StrCat(" and ", stalled - 1, " more") : "",
                        stalled > 1 ? " have" : " has", " waited ",
                        absl::FormatDuration(absl::Trunc(now - oldest.since, absl::Seconds(1))), " for ",
                        whom.empty() ? "the other ranks" : whom);
  }
  MR_LOG(Warning, line);
}

}  // namespace millrace::hvd
