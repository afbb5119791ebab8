#include "millrace/collective/group_core.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "millrace/base/varint.h"
#include "millrace/net/address.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace::collective {
namespace {

uint64_t NewIncarnation(Clock* clock) {
  static std::atomic<uint64_t> made{0};
  return static_cast<uint64_t>(absl::ToUnixNanos(clock->Now())) * 1024 + made++ % 1024 + 1;
}

}  // namespace

std::vector<std::vector<int>> RanksByHost(const std::vector<RankAddress>& ranks) {
  std::vector<std::vector<int>> hosts;
  std::map<std::string, size_t> index;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::string host = ranks[rank].host;
    if (host.empty()) {
      const StatusOr<net::HostPort> parsed = net::ParseHostPort(ranks[rank].address);
      host = parsed.ok() ? parsed->host : ranks[rank].address;
      if (parsed.ok() && net::IsLoopback(host)) host = "localhost";
    }
    const auto [it, added] = index.emplace(std::move(host), hosts.size());
    if (added) hosts.emplace_back();
    hosts[it->second].push_back(static_cast<int>(rank));
  }
  return hosts;
}

GroupCore::GroupCore(GroupOptions options)
    : options_(std::move(options)), incarnation_(NewIncarnation(options_.clock)), hosts_(RanksByHost(options_.ranks)) {
  for (int rank = 0; rank < size(); ++rank) {
    const RankAddress& who = options_.ranks[rank];
    const absl::string_view at = who.task.empty() ? "" : " at ";
    names_.push_back(absl::StrCat("rank ", rank, " (", who.task, at, who.address, ")"));
    others_.push_back(std::make_unique<Other>());
    if (rank != options_.rank) others_[rank]->channel = options_.transport->Connect(who.address);
  }
}

std::string GroupCore::OwnSender(bool by_calls) const {
  return EncodeSender({.group = options_.key,
                       .rank = static_cast<uint64_t>(options_.rank),
                       .size = static_cast<uint64_t>(size()),
                       .incarnation = incarnation_,
                       .by_calls = by_calls});
}

net::Bytes GroupCore::Call(absl::string_view body) const { return net::Bytes::Of(absl::StrCat(OwnSender(), body)); }

// ---- Operations

GroupCore::Running& GroupCore::Find(uint64_t sequence) {
  Running& running = running_[sequence];
  if (running.instance == nullptr)
    running.instance =
        std::make_shared<Instance>(shared_from_this(), sequence, InstanceLimits{.eager_bytes = options_.eager_bytes});
  return running;
}

GroupCore::Begun GroupCore::Next(uint64_t sequence, absl::Duration timeout) {
  Running& running = Find(sequence);
  running.begun = true;
  running.timeout = timeout;
  running.since = options_.clock->Now();
  running.deadline = running.since + timeout;
  ++in_flight_;
  bool look = UpdateMustCall();
  if (own_mailroom_ != nullptr && attending_ > 0 && (in_flight_ > 1 || quick_.has_value())) {
    // A thread that attends may wait for one rank alone.
    own_mailroom_->bell()->set_only(0);
    if (quick_.has_value() && quick_ != sequence) DisturbQuick();
    look = true;
  }
  return {running.instance, look};
}

void GroupCore::Start(Instance::Part part, absl::Duration timeout) {
  Begun begun;
  Status failed;
  {
    MutexLock lock(&mu_);
    failed = failed_;
    if (failed.ok()) {
      if (in_flight_ >= options_.most_in_flight || !waiting_.empty())
        return waiting_.push_back({std::move(part), timeout});
      begun = Next(timeout);
    }
  }
  if (!failed.ok()) return part.done(failed);
  Launch(std::move(begun), std::move(part), timeout);
}

void GroupCore::Launch(Begun begun, Instance::Part part, absl::Duration timeout) {
  for (const int rank : part.algorithm->destinations()) WantLink(rank);
  for (const int rank : part.algorithm->sources()) WantLink(rank);
  std::vector<int> left;
  {
    MutexLock lock(&mu_);
    for (int rank = 0; rank < size(); ++rank) {
      if (others_[rank]->left) left.push_back(rank);
    }
  }
  begun.instance->Begin(std::move(part));
  for (const int rank : left) begun.instance->PeerLeft(rank);
  if (begun.look) TakeMail();
  Poke(timeout);
}

void GroupCore::Ended(uint64_t sequence, bool all_took_part) {
  Begun next;
  Instance::Part part;
  absl::Duration timeout;
  uint64_t wait = 0;
  std::string line;
  {
    MutexLock lock(&mu_);
    all_joined_ |= all_took_part;
    if (failed_.ok()) line = NameNobody();
    const auto it = running_.find(sequence);
    if (it == running_.end()) return;
    wait = it->second.wait;
    if (wait != 0) ++borrowed_;
    if (it->second.begun) --in_flight_;
    running_.erase(it);
    if (failed_.ok() && !waiting_.empty()) {
      part = std::move(waiting_.front().part);
      timeout = waiting_.front().timeout;
      next = Next(timeout);
      waiting_.pop_front();
    }
    next.look |= UpdateMustCall();
  }
  if (wait != 0) {
    options_.waits->End(wait);
    Return();
  }
  Announce(line);
  if (next.instance != nullptr) Launch(std::move(next), std::move(part), timeout);
}

// ---- The end

bool GroupCore::EndOperations(const Status& why, int aborts) {
  std::vector<std::shared_ptr<Instance>> instances;
  std::deque<Waiting> waiting;
  {
    MutexLock lock(&mu_);
    if (!failed_.ok()) return false;
    failed_ = why;
    aborts_ += aborts;
    for (const auto& [sequence, running] : running_) instances.push_back(running.instance);
    waiting.swap(waiting_);
  }
  DisturbQuick();
  for (const auto& instance : instances) instance->Fail(why);
  for (Waiting& next : waiting) next.part.done(why);
  return true;
}

void GroupCore::CloseLinks(const net::Bytes& last) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != options_.rank) others_[rank]->link.Close(last);
  }
}

void GroupCore::Fail(Status why) {
  why = WithPrefix(absl::StrCat("collective group '", options_.key, "': "), why);
  if (!EndOperations(why, size() - 1)) return;
  const std::string status = EncodeStatus(why);
  CloseLinks(net::Bytes::Of(absl::StrCat(EncodeHead({.kind = MessageKind::kAbort}), status)));
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == options_.rank) continue;
    others_[rank]->channel->Call(kAbortMethod, Call(status), {.timeout = options_.peer_timeout},
                                 [weak = weak_from_this()](const StatusOr<net::Bytes>&) {
                                   const auto self = weak.lock();
                                   if (self == nullptr) return;
                                   {
                                     MutexLock lock(&self->mu_);
                                     --self->aborts_;
                                   }
                                   self->CheckLeave();
                                 });
  }
}

void GroupCore::OnAbort(const net::Bytes& status) {
  const Status why = DecodeStatus(status);  // it names the group already
  if (!EndOperations(why, 0)) return;
  // Whoever found the fault tells all ranks; those that have a link with this one hear it from here as well, in case
  // that is the shorter way.
  CloseLinks(net::Bytes::Of(absl::StrCat(EncodeHead({.kind = MessageKind::kAbort}), EncodeStatus(why))));
  CheckLeave();
}

void GroupCore::Close() {
  bool sends;
  {
    MutexLock lock(&mu_);
    closed_ = true;
    sends = sends_ > 0;
  }
  EndOperations(Cancelled("collective group '", options_.key, "' was closed"), 0);
  // It must not overtake messages that travel as calls; the others then notice that there is no such group any more.
  CloseLinks(sends ? net::Bytes() : net::Bytes::Of(EncodeHead({.kind = MessageKind::kLeave})));
  std::map<uint64_t, Running> running;
  {
    MutexLock lock(&mu_);
    running.swap(running_);
    lenders_gone_ = true;
    while (borrowed_ > 0) returned_.Wait(&mu_);
  }
  for (const auto& [sequence, operation] : running) {
    if (operation.wait != 0) options_.waits->End(operation.wait);
  }
}

bool GroupCore::Borrow() {
  MutexLock lock(&mu_);
  if (lenders_gone_) return false;
  ++borrowed_;
  return true;
}

void GroupCore::Return() {
  MutexLock lock(&mu_);
  if (--borrowed_ == 0) returned_.SignalAll();
}

// ---- Calls of other ranks

Status GroupCore::CheckSender(const Sender& sender) {
  if (sender.size != static_cast<uint64_t>(size())) {
    Status why = InvalidArgument("the ranks differ in the size of the group: rank ", sender.rank, " has ", sender.size,
                                 ", ", RankName(rank()), " has ", size());
    Fail(why);
    return why;
  }
  if (sender.rank >= static_cast<uint64_t>(size()) || static_cast<int>(sender.rank) == rank())
    return InvalidArgument("group '", options_.key, "': ", RankName(rank()),
                           " was called by a task that says to be rank ", sender.rank);
  const int from = static_cast<int>(sender.rank);
  {
    MutexLock lock(&mu_);
    Other& other = *others_[from];
    other.known = true;
    if (other.incarnation == 0) other.incarnation = sender.incarnation;
    if (other.incarnation == sender.incarnation) return absl::OkStatus();
  }
  Fail(Aborted(RankName(from), " was restarted"));
  return Aborted("group '", options_.key, "': ", RankName(from), " was restarted; the group goes on without it");
}

void GroupCore::OnMessage(int from, const net::Bytes& bytes) {
  const auto wrong = [&](const Status& why) { Fail(WithPrefix(absl::StrCat(RankName(from), ": "), why)); };
  StatusOr<Message> message = DecodeMessage(bytes);
  if (!message.ok()) return wrong(message.status());
  if (message->kind == MessageKind::kAbort) return OnAbort(message->payload);
  if (message->kind == MessageKind::kLeave) return OnLeft(from);
  if (message->kind == MessageKind::kMemory) return OnMemory(from, message->payload);
  if (message->kind == MessageKind::kMail) return TakeMail();
  const auto instance = QueueMessage(from, *std::move(message));
  if (!instance.ok()) return wrong(instance.status());
  if (*instance == nullptr) return;
  (*instance)->Work();
  RingAttending();
}

StatusOr<std::shared_ptr<Instance>> GroupCore::QueueMessage(int from, const net::Bytes& bytes) {
  MR_ASSIGN_OR_RETURN(Message message, DecodeMessage(bytes));
  return QueueMessage(from, std::move(message));
}

StatusOr<std::shared_ptr<Instance>> GroupCore::QueueMessage(int from, Message message) {
  if (!IsOfOperation(message.kind)) return InvalidArgument("it has left a message that is of no operation");
  const uint64_t sequence = message.sequence;
  std::shared_ptr<Instance> instance;
  {
    MutexLock lock(&mu_);
    if (!failed_.ok()) return nullptr;
    if (quick_ == sequence) {
      quick_messages_.push_back({from, std::move(message)});
      DisturbQuick();
      return nullptr;
    }
    const auto it = running_.find(sequence);
    if (it != running_.end()) {
      instance = it->second.instance;
    } else if (sequence >= next_sequence_ &&
               sequence < next_sequence_ + static_cast<uint64_t>(options_.most_in_flight)) {
      instance = Find(sequence).instance;
    } else if (sequence < next_sequence_) {
      return nullptr;  // late: the operation is over
    }
    if (message.kind != MessageKind::kDone) others_[from]->started = std::max(others_[from]->started, sequence + 1);
  }
  if (instance == nullptr) return InvalidArgument("it sends for operation ", sequence, ", too far ahead of this rank");
  instance->Queue(from, std::move(message));
  return instance;
}

StatusOr<net::Bytes> GroupCore::OnPing(int from, net::BytesReader* reader) {
  uint64_t sequence = 0;
  OperationSpec spec;
  if (!reader->ReadVarint(&sequence) || !ReadSpec(reader, &spec)) return InvalidArgument("an invalid ping");
  std::shared_ptr<Instance> instance;
  uint64_t started = 0;
  Status failed;
  {
    MutexLock lock(&mu_);
    failed = failed_;
    started = next_sequence_;
    const auto it = running_.find(sequence);
    if (it != running_.end()) instance = it->second.instance;
  }
  // Ranks that do different things may wait for each other without a message between them.
  if (failed.ok() && instance != nullptr) {
    if (const auto own = instance->spec(); own.has_value()) {
      const Status same = CheckSame(RankName(rank()), *own, RankName(from), spec);
      if (!same.ok()) Fail(same);
    }
  }
  std::string answer;
  PutVarint(&answer, started);
  if (!failed.ok()) answer += EncodeStatus(failed);
  return net::Bytes::Of(std::move(answer));
}

}  // namespace millrace::collective
