// How a group watches over its operations: who is missing, who is gone, and what takes too long.
#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/base/stood_still.h"
#include "millrace/base/varint.h"
#include "millrace/collective/group_core.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace::collective {
namespace {

// When the ranks that have not joined are named: for the first time, and then.
constexpr absl::Duration kFirstNaming = absl::Seconds(2), kNextNaming = absl::Seconds(10);
constexpr size_t kMostNamed = 8;

}  // namespace

absl::Duration GroupCore::WatchInterval(absl::Duration timeout) const {
  // Often enough to know who is missing when the deadline comes.
  return std::min(options_.ping_interval, std::max(timeout / 4, absl::Milliseconds(1)));
}

void GroupCore::Poke(absl::Duration timeout) {
  const absl::Duration interval = WatchInterval(timeout);
  uint64_t number;
  {
    MutexLock lock(&mu_);
    if (next_tick_ != absl::InfiniteFuture() && timeout == absl::InfiniteDuration()) return;
    const absl::Time next = options_.clock->Now() + interval;
    if (next_tick_ <= next || !failed_.ok()) return;
    next_tick_ = next;
    number = ++tick_;
  }
  ScheduleTick(interval, number);
}

void GroupCore::ScheduleTick(absl::Duration delay, uint64_t number) {
  options_.timers->Schedule(delay, [weak = weak_from_this(), number] {
    if (const auto self = weak.lock()) self->Tick(number);
  });
}

void GroupCore::Tick(uint64_t number) {
  const absl::Time now = options_.clock->Now();
  std::vector<int> ping;
  std::shared_ptr<Instance> oldest;
  OperationSpec spec;  // of the oldest
  bool registered = true;
  Status why;
  std::string line;
  absl::Duration delay = options_.ping_interval;
  {
    MutexLock lock(&mu_);
    if (number != tick_) return;
    next_tick_ = absl::InfiniteFuture();
    if (in_flight_ == 0 || !failed_.ok()) return;
    for (const auto& [sequence, running] : running_) {
      if (!running.begun) continue;
      const absl::Duration interval = WatchInterval(running.timeout);
      delay = std::min(delay, interval);
      // It has a number, but the thread that starts it may still be about to call Begin.
      const std::optional<OperationSpec> begun = running.instance->spec();
      if (!begun.has_value()) continue;
      if (now >= running.deadline) {
        why = DeadlineExceeded(Describe(*begun), " is not complete after ", absl::FormatDuration(running.timeout), ": ",
                               Missing(*running.instance));
        break;
      }
      delay = std::min(delay, running.deadline - now);
      if (oldest != nullptr || now - running.since < interval / 2) continue;
      oldest = running.instance;
      spec = *begun;
      registered = running.wait != 0;
    }
    for (int rank = 0; rank < size() && why.ok(); ++rank) {
      Other& other = *others_[rank];
      if (rank == options_.rank || other.left) continue;
      if (!other.link.open() && now > other.wanted_since + options_.join_timeout)
        why = Unavailable(RankName(rank), " did not join within ", absl::FormatDuration(options_.join_timeout),
                          other.why_absent.empty() ? "" : ": ", other.why_absent);
      if (oldest != nullptr && !std::exchange(other.pinging, true)) ping.push_back(rank);
    }
    if (oldest != nullptr) line = NameAbsent(now, running_[oldest->sequence()].since);
    next_tick_ = now + delay;
    number = ++tick_;
  }
  Announce(line);
  if (!why.ok()) return Fail(std::move(why));
  if (oldest != nullptr) {
    if (!registered && options_.waits != nullptr) RegisterWait(oldest->sequence(), spec);
    for (const int rank : ping) Ping(rank, spec, oldest->sequence());
  }
  ScheduleTick(delay, number);
}

void GroupCore::Ping(int rank, const OperationSpec& spec, uint64_t sequence) {
  std::string body;
  PutVarint(&body, sequence);
  AppendSpec(spec, &body);
  others_[rank]->channel->Call(
      kPingMethod, Call(body), {.timeout = options_.peer_timeout},
      [weak = weak_from_this(), rank, asked = options_.clock->Now()](const StatusOr<net::Bytes>& answer) {
        if (const auto self = weak.lock()) self->OnPingAnswer(rank, asked, answer);
      });
}

void GroupCore::OnPingAnswer(int rank, absl::Time asked, const StatusOr<net::Bytes>& answer) {
  uint64_t started = 0;
  bool known, left;
  net::Bytes failed;
  Status read = absl::OkStatus();
  if (answer.ok()) {
    net::BytesReader reader(*answer);
    if (!reader.ReadVarint(&started) || !reader.ReadBytes(reader.remaining(), &failed))
      read = InvalidArgument("an invalid answer to a ping");
  }
  {
    MutexLock lock(&mu_);
    Other& other = *others_[rank];
    other.pinging = false;
    other.known |= answer.ok();
    other.started = std::max(other.started, started);
    known = other.known || all_joined_;
    left = other.left || leave_sent_ || !failed_.ok();
  }
  if (left) return;
  if (!read.ok()) return Fail(WithPrefix(absl::StrCat(RankName(rank), ": "), read));
  if (!failed.empty()) return OnAbort(failed);
  // A rank that was never there may still join.
  if (answer.ok() || !known) return;
  if (absl::IsDeadlineExceeded(answer.status())) {
    if (StoodStill(options_.clock->Now(), asked, options_.peer_timeout)) return;  // the next tick asks again
    return Fail(Unavailable(RankName(rank), " has not answered for ", absl::FormatDuration(options_.peer_timeout),
                            ": it hangs or is cut off"));
  }
  if (absl::IsUnavailable(answer.status()) || absl::IsNotFound(answer.status()) || absl::IsAborted(answer.status()))
    Fail(Unavailable(RankName(rank), " is lost: ", answer.status().message()));
}

std::string GroupCore::Missing(const Instance& instance) const {
  std::vector<std::string> missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != options_.rank && others_[rank]->started <= instance.sequence()) missing.push_back(names_[rank]);
  }
  if (!missing.empty())
    return absl::StrCat(absl::StrJoin(missing, ", "), missing.size() == 1 ? " has" : " have", " not started it");
  const int awaited = instance.awaited();
  return awaited < 0 ? "it is about to end" : absl::StrCat("it waits for ", names_[awaited]);
}

std::vector<std::string> GroupCore::Absent() const {
  std::vector<std::string> absent;
  for (int rank = 0; rank < size() && !all_joined_; ++rank) {
    if (rank != options_.rank && !others_[rank]->known) absent.push_back(names_[rank]);
  }
  return absent;
}

std::string GroupCore::NameAbsent(absl::Time now, absl::Time since) {
  if (options_.announce == nullptr) return "";
  std::vector<std::string> absent = Absent();
  if (absent.empty()) return NameNobody();
  if (now < std::max(name_absent_, since + kFirstNaming)) return "";
  name_absent_ = now + kNextNaming;
  const size_t count = absent.size();
  const std::string more = count > kMostNamed ? absl::StrCat(" and ", count - kMostNamed, " others") : "";
  absent.resize(std::min(count, kMostNamed));
  return absl::StrCat("collective group '", options_.key, "' has waited ",
                      absl::FormatDuration(absl::Trunc(now - since, absl::Seconds(1))), " of at most ",
                      absl::FormatDuration(options_.join_timeout), " for ", count, " of ", size(),
                      " ranks to join: ", absl::StrJoin(absent, ", "), more);
}

std::string GroupCore::NameNobody() {
  if (name_absent_ == absl::InfinitePast() || !Absent().empty()) return "";
  name_absent_ = absl::InfinitePast();
  return absl::StrCat("all ", size(), " ranks of collective group '", options_.key, "' have joined");
}

void GroupCore::Announce(const std::string& line) {
  if (line.empty() || !Borrow()) return;
  options_.announce(line);
  Return();
}

void GroupCore::RegisterWait(uint64_t sequence, const OperationSpec& spec) {
  if (!Borrow()) return;
  Wait wait{.node = Describe(spec), .kind = Wait::Kind::kPeer};
  const uint64_t id = options_.waits->Begin(std::move(wait), [weak = weak_from_this(), sequence](Wait* wait) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    MutexLock lock(&self->mu_);
    const auto it = self->running_.find(sequence);
    if (it == self->running_.end()) return;
    wait->what = absl::StrCat("the other ranks of collective group '", self->options_.key,
                              "': ", self->Missing(*it->second.instance));
    wait->has = 0;
    wait->needs = self->size();
    for (int rank = 0; rank < self->size(); ++rank) {
      const bool started = rank == self->options_.rank || self->others_[rank]->started > sequence;
      wait->has += started;
      if (!started && wait->peer.empty()) wait->peer = self->options_.ranks[rank].task;
    }
    const int awaited = it->second.instance->awaited();
    if (wait->peer.empty() && awaited >= 0) wait->peer = self->options_.ranks[awaited].task;
  });
  bool kept;
  {
    MutexLock lock(&mu_);
    const auto it = running_.find(sequence);
    kept = it != running_.end();
    if (kept) it->second.wait = id;
  }
  if (!kept) options_.waits->End(id);  // it ended meanwhile
  Return();
}

}  // namespace millrace::collective
