#include "millrace/runtime/run_records.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "millrace/base/log.h"
#include "millrace/runtime/kernel.h"

namespace millrace {
namespace {

// Numbers come from peers; no sum of two that are valid overflows.
constexpr int64_t kLastNumber = int64_t{1} << 60;

bool IsValid(const RunIdentity& identity) {
  const auto valid = [](int64_t number) { return number >= 0 && number <= kLastNumber; };
  return identity.given() && valid(identity.number) && valid(identity.oldest) && valid(identity.attempt);
}

std::string RunName(const RunIdentity& identity) {
  return absl::StrFormat("run %d of client %016x", identity.number, identity.client);
}

}  // namespace

RunIdentity RunIdentity::OfNewClient() {
  std::random_device entropy;
  RunIdentity identity{.number = 1, .oldest = 1};
  while (identity.client == 0) identity.client = uint64_t{entropy()} << 32 | entropy();
  return identity;
}

uint64_t ExecutionKey(const KernelContext& ctx) {
  return absl::HashOf(ctx.node().name(), ctx.step().call_path, ctx.frame_id(), ctx.iteration());
}

size_t NodeOutcome::bytes() const {
  size_t sum = sizeof(NodeOutcome);
  for (const Tensor& output : outputs) sum += output.IsInitialized() ? output.TotalBytes() : 0;
  return sum;
}

RunRecord::~RunRecord() {
  MutexLock lock(&mu_);
  usage_->bytes.fetch_sub(bytes_, std::memory_order_relaxed);
}

void RunRecord::StartAttempt(const RunIdentity& identity) {
  identity_ = identity;
  running_ = true;
  MutexLock lock(&mu_);
  for (auto& [node, slot] : slots_) slot.entered = 0;
}

RunRecord::Execution RunRecord::Enter(uint64_t node) {
  MutexLock lock(&mu_);
  Slot& slot = slots_[node];
  Execution execution{.node = node, .index = slot.entered++};
  if (execution.index < slot.outcomes.size()) execution.earlier = slot.outcomes[execution.index];
  return execution;
}

void RunRecord::Complete(const Execution& execution, NodeOutcome outcome) {
  const size_t size = outcome.bytes();
  MutexLock lock(&mu_);
  auto& outcomes = slots_[execution.node].outcomes;
  if (outcomes.size() <= execution.index) outcomes.resize(execution.index + 1);
  std::optional<NodeOutcome>& place = outcomes[execution.index];
  if (place) {
    bytes_ -= place->bytes();
    usage_->bytes.fetch_sub(place->bytes(), std::memory_order_relaxed);
    place.reset();
  }
  if (bytes_ + size > usage_->limits.bytes_per_run ||
      usage_->bytes.load(std::memory_order_relaxed) + size > usage_->limits.bytes) {
    MR_LOG(Warning, "the ", size, " bytes that a node of ", RunName(identity_),
           " gave are too many to be kept; if the run is repeated, the node runs again");
    return;
  }
  bytes_ += size;
  usage_->bytes.fetch_add(size, std::memory_order_relaxed);
  place = std::move(outcome);
}

RunRecords::Client& RunRecords::Find(uint64_t client) {
  const auto [it, is_new] = clients_.try_emplace(client);
  if (is_new) {
    it->second.turn = by_use_.insert(by_use_.begin(), client);
  } else {
    by_use_.splice(by_use_.begin(), by_use_, it->second.turn);
  }
  return it->second;
}

void RunRecords::Forget(Client& client, int64_t before, Dropped* dropped) {
  client.oldest = std::max(client.oldest, before);
  while (!client.runs.empty() && client.runs.begin()->first < client.oldest) {
    dropped->push_back(std::move(client.runs.begin()->second));
    client.runs.erase(client.runs.begin());
  }
}

void RunRecords::DropSilentClients(Dropped* dropped) {
  const RunRecordLimits& limits = usage_->limits;
  // Some room is kept for the outputs of the runs to come.
  const bool short_of_bytes = bytes() > limits.bytes - limits.bytes / 4;
  if (clients_.size() <= limits.clients && !short_of_bytes) return;
  for (auto it = by_use_.end(); it != by_use_.begin();) {
    const auto client = clients_.find(*--it);
    if (it == by_use_.begin()) return;  // the one that has just come
    const auto& runs = client->second.runs;
    if (std::any_of(runs.begin(), runs.end(), [](const auto& run) { return run.second->running_; })) continue;
    size_t freed = 0;
    for (auto& [number, record] : client->second.runs) {
      MutexLock lock(&record->mu_);
      freed += record->bytes_;
    }
    const bool surplus = clients_.size() > limits.clients;
    if (!surplus && freed == 0) continue;
    for (auto& [number, record] : client->second.runs) dropped->push_back(std::move(record));
    clients_.erase(client);
    it = by_use_.erase(it);
    return;  // one for each that comes keeps the bound
  }
}

StatusOr<RunRecords::Attempt> RunRecords::Begin(const RunIdentity& identity, absl::AnyInvocable<void(Status)> ready) {
  if (!IsValid(identity)) return InvalidArgument(RunName(identity), " is no valid identity");
  Dropped dropped;
  absl::AnyInvocable<void(Status)> superseded;
  Attempt attempt;
  RunIdentity here = identity;
  {
    MutexLock lock(&mu_);
    Client& client = Find(identity.client);
    DropSilentClients(&dropped);
    here.number += client.shift;
    if (client.repeats_from >= 0 && here.number >= client.repeats_from && here.number < client.last) {
      client.shift += client.last - here.number;
      here.number = client.last;
    }
    here.oldest = std::min(identity.oldest + client.shift, here.number);
    Forget(client, here.oldest, &dropped);
    if (here.number < client.oldest) {
      return Aborted(RunName(identity), " is late: the client has gone on to run ", client.oldest);
    }
    std::shared_ptr<RunRecord>& record = client.runs[here.number];
    if (record == nullptr) {
      if (client.runs.size() > usage_->limits.runs_per_client) {
        client.runs.erase(here.number);
        return ResourceExhausted(RunName(identity), ": the client may still repeat ", client.runs.size(),
                                 " runs, and more are not recorded");
      }
      record = std::make_shared<RunRecord>(usage_);
    } else if (here.attempt < std::max(record->identity_.attempt, record->next_ ? record->next_identity_.attempt : 0)) {
      return Aborted("attempt ", here.attempt, " of ", RunName(identity), " is late: a later one has come");
    }
    client.last = std::max(client.last, here.number);
    attempt = {.record = record, .waits = record->running_};
    if (attempt.waits) {
      superseded = std::exchange(record->next_, std::move(ready));
      record->next_identity_ = here;
    } else {
      record->StartAttempt(here);
    }
  }
  if (superseded) superseded(Aborted(RunName(here), " was started again"));
  return attempt;
}

void RunRecords::End(RunRecord& record) {
  absl::AnyInvocable<void(Status)> next;
  {
    MutexLock lock(&mu_);
    record.running_ = false;
    if (!record.next_) return;
    next = std::exchange(record.next_, nullptr);
    record.StartAttempt(record.next_identity_);
  }
  next(absl::OkStatus());
}

bool RunRecords::IsAwaited(const RunRecord& record) const {
  MutexLock lock(&mu_);
  return record.next_ != nullptr;
}

void RunRecords::GiveUp(RunRecord& record, const RunIdentity& identity, const Status& why) {
  absl::AnyInvocable<void(Status)> next;
  {
    MutexLock lock(&mu_);
    if (!record.next_ || record.next_identity_.attempt != identity.attempt) return;
    next = std::exchange(record.next_, nullptr);
  }
  next(why);
}

int64_t RunRecords::BeginRepeating(const RunIdentity& identity) {
  if (!IsValid(identity)) return identity.number;  // Begin refuses it
  MutexLock lock(&mu_);
  Client& client = Find(identity.client);
  const int64_t first = identity.number + client.shift;
  if (client.repeats_from < 0) client.repeats_from = first;
  client.repeats_attempt = std::max(client.repeats_attempt, identity.attempt);
  return std::max(first, client.last) - client.shift;
}

Status RunRecords::GoOnRepeating(const RunIdentity& identity) const {
  MutexLock lock(&mu_);
  const auto it = clients_.find(identity.client);
  if (it == clients_.end() || it->second.repeats_attempt <= identity.attempt) return absl::OkStatus();
  return Aborted(RunName(identity), " is repeated by a later attempt");
}

size_t RunRecords::size() const {
  MutexLock lock(&mu_);
  size_t sum = 0;
  for (const auto& [id, client] : clients_) sum += client.runs.size();
  return sum;
}

}  // namespace millrace
