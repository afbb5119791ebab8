#include "millrace/cluster/step/line_tensors.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// How far a loop's sender may be ahead of its receivers. parallel_iterations bounds it for honest peers.
constexpr int64_t kMostEarly = int64_t{1} << 16;
constexpr int64_t kMostEarlyBytes = int64_t{8} << 30;

}  // namespace

void StepLine::Send(net::Bytes message) const {
  if (outgoing) return outgoing->Send(std::move(message));
  if (incoming != nullptr) incoming->Send(std::move(message));
}

void LineTensors::UseEdges(std::shared_ptr<const StepEdges> edges) {
  MutexLock lock(&mu_);
  edges_ = std::move(edges);
}

void LineTensors::OpenLine(int task, bool answers, bool traced) {
  MutexLock lock(&mu_);
  if (lines_.empty()) {
    lines_.resize(edges_->tasks.size());
    slots_.resize(edges_->edges.size());
    missing_.reserve(edges_->groups.size());
    for (const std::vector<int>& group : edges_->groups) missing_.push_back(static_cast<int>(group.size()));
  }
  lines_[task].open = true;
  lines_[task].answers = answers;
  lines_[task].traced = traced;
}

void LineTensors::SetLine(int task, StepLine line) {
  MutexLock lock(&mu_);
  lines_[task].to = std::move(line);
}

void LineTensors::SetStats(StepStatsCollector* stats) {
  MutexLock lock(&mu_);
  stats_ = stats;
}

bool LineTensors::LeadsTo(absl::string_view task) {
  MutexLock lock(&mu_);
  return FindLine(task) >= 0;
}

int LineTensors::FindLine(absl::string_view task) const {
  if (lines_.empty()) return -1;
  const int index = edges_->FindTask(task);
  return index >= 0 && lines_[index].open ? index : -1;
}

StatusOr<bool> LineTensors::SendSlot(int number, absl::string_view key, RendezvousItem* item) {
  SteppedTensors leaving;
  StepLine to;
  int64_t sent_micros = 0;
  {
    MutexLock lock(&mu_);
    if (number < 0 || static_cast<size_t>(number) >= slots_.size()) return false;
    const StepEdge& edge = edges_->edges[number];
    if (edge.arrives() || !lines_[edge.task].open) return false;
    if (!aborted_.ok()) return aborted_;
    Line& line = lines_[edge.task];
    Slot& slot = slots_[number];
    if (slot.state != Slot::State::kEmpty) return AlreadyExists("tensor ", key, " was sent twice in one step");
    slot.state = Slot::State::kDone;
    if (line.answers && (edge.rides || edge.kind == StepEdge::Kind::kFetch)) {
      slot.item = std::move(*item);
      line.held.push_back(number);
      return true;
    }
    if (edge.group >= 0) {
      slot.item = std::move(*item);
      if (--missing_[edge.group] > 0) return true;
      const std::vector<int>& group = edges_->groups[edge.group];
      leaving.reserve(group.size());
      for (const int member : group) {
        leaving.push_back({.number = edges_->edges[member].number, .item = std::exchange(slots_[member].item, {})});
      }
    } else {
      leaving.push_back({.number = edge.number, .item = std::move(*item)});
    }
    to = line.to;
    if (line.traced) sent_micros = absl::ToUnixMicros(waits_->Now());
  }
  MR_ASSIGN_OR_RETURN(net::Bytes message, EncodeTensors(leaving, sent_micros));
  to.Send(std::move(message));
  return true;
}

StatusOr<bool> LineTensors::Send(absl::string_view key, RendezvousItem* item) {
  StepLine to;
  int64_t sent_micros = 0;
  {
    MutexLock lock(&mu_);
    if (lines_.empty()) return false;
    const StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
    const int index = parsed.ok() && parsed->send_task != parsed->recv_task ? FindLine(parsed->recv_task) : -1;
    if (index < 0) return false;
    if (!aborted_.ok()) return aborted_;
    to = lines_[index].to;
    if (lines_[index].traced) sent_micros = absl::ToUnixMicros(waits_->Now());
  }
  SteppedTensors leaving;
  leaving.push_back({.key = std::string(key), .item = std::move(*item)});
  MR_ASSIGN_OR_RETURN(net::Bytes message, EncodeTensors(leaving, sent_micros));
  to.Send(std::move(message));
  return true;
}

// It was not requested, so only the time of its arrival is known.
void LineTensors::NoteArrival(absl::string_view key, const RendezvousItem& item, absl::Time arrived) {
  if (stats_ == nullptr) return;
  const int64_t at = arrived == absl::InfinitePast() ? stats_->NowNanos() : absl::ToUnixNanos(arrived);
  NoteTransfer(stats_, key, item, at, at);
}

namespace {

Status WillNotCome(absl::string_view key, const std::string& task) {
  const StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
  return Internal("tensor ", parsed.ok() ? SentTensorName(parsed->tensor) : key, " was to come from ", task,
                  ", which has ended its part without sending it");
}

}  // namespace

bool LineTensors::RecvFrom(Line* line, Slot* slot, absl::string_view key, Done* done,
                           StatusOr<RendezvousItem>* result) {
  if (!aborted_.ok()) {
    *result = aborted_;
    return true;
  }
  switch (slot->state) {
    case Slot::State::kHere:
      slot->state = Slot::State::kDone;
      NoteArrival(key, slot->item, slot->since);
      if (slot->early) {
        --line->early;
        line->early_bytes -= static_cast<int64_t>(slot->item.tensor.TotalBytes());
      }
      *result = std::exchange(slot->item, {});
      return true;
    case Slot::State::kEmpty:
      if (line->over) {
        *result = WillNotCome(key, edges_->tasks[line - lines_.data()].name);
        return true;
      }
      slot->state = Slot::State::kAwaited;
      slot->waiter = std::move(*done);
      slot->since = waits_->Now();
      ++line->awaited;
      return false;
    default:
      *result = AlreadyExists("tensor ", key, " was requested twice in one step");
      return true;
  }
}

bool LineTensors::Recv(absl::string_view key, absl::string_view from, Done* done) {
  StatusOr<RendezvousItem> result;
  {
    MutexLock lock(&mu_);
    const int line = FindLine(from);
    if (line < 0) return false;
    if (!RecvFrom(&lines_[line], &in_loops_[key], key, done, &result)) return true;
    in_loops_.erase(key);
  }
  (*done)(std::move(result));
  return true;
}

bool LineTensors::RecvSlot(int number, absl::string_view key, Done* done) {
  StatusOr<RendezvousItem> result;
  {
    MutexLock lock(&mu_);
    if (number < 0 || static_cast<size_t>(number) >= slots_.size()) return false;
    const StepEdge& edge = edges_->edges[number];
    if (!edge.arrives() || !lines_[edge.task].open) return false;
    if (!RecvFrom(&lines_[edge.task], &slots_[number], key, done, &result)) return true;
  }
  (*done)(std::move(result));
  return true;
}

Status LineTensors::Arrive(int task, SteppedTensors tensors) {
  // They arrived together, so all have the same time, however long the first one's receiver takes.
  const absl::Time arrived =
      !tensors.empty() && tensors.front().item.sent_micros != 0 ? waits_->Now() : absl::InfinitePast();
  for (SteppedTensor& tensor : tensors) MR_RETURN_IF_ERROR(ArriveOne(task, std::move(tensor), arrived));
  return absl::OkStatus();
}

Status LineTensors::ArriveOne(int task, SteppedTensor tensor, absl::Time arrived) {
  Done waiter;
  {
    MutexLock lock(&mu_);
    if (!aborted_.ok()) return absl::OkStatus();
    const std::string& from = edges_->tasks[task].name;
    Line& line = lines_[task];
    const bool by_key = tensor.number < 0;
    const int number = by_key ? -1 : edges_->Arriving(task, static_cast<uint64_t>(tensor.number));
    if (by_key) {
      const StatusOr<ParsedKey> parsed = ParsedKey::Parse(tensor.key);
      if (!parsed.ok()) return parsed.status();
      if (parsed->send_task != from)
        return InvalidArgument(from, " sent the tensor '", tensor.key, "', which is not its own");
    } else if (number < 0) {
      return InvalidArgument(from, " sent a tensor of edge ", tensor.number,
                             ", and none comes from there under that number");
    }
    Slot& slot = by_key ? in_loops_[tensor.key] : slots_[number];
    const absl::string_view key = by_key ? tensor.key : edges_->edges[number].key;
    if (slot.state == Slot::State::kEmpty) {
      if (by_key) {
        if (line.early >= kMostEarly || line.early_bytes >= kMostEarlyBytes) {
          return ResourceExhausted(from, " has sent ", line.early, " tensors of loops (", line.early_bytes,
                                   " bytes) that nobody has received yet; the last is '", key, "'");
        }
        slot.early = true;
        ++line.early;
        line.early_bytes += static_cast<int64_t>(tensor.item.tensor.TotalBytes());
      }
      slot.state = Slot::State::kHere;
      slot.item = std::move(tensor.item);
      slot.since = arrived;
      return absl::OkStatus();
    }
    if (slot.state != Slot::State::kAwaited)
      return InvalidArgument(from, " sent the tensor '", key, "' twice in one step");
    NoteArrival(key, tensor.item, arrived);
    waiter = std::move(slot.waiter);
    slot.state = Slot::State::kDone;
    --line.awaited;
    if (by_key) in_loops_.erase(tensor.key);
  }
  waiter(std::move(tensor.item));
  return absl::OkStatus();
}

void LineTensors::EndLine(int task) {
  std::vector<std::pair<std::string, Done>> waiting;
  std::string name;
  {
    MutexLock lock(&mu_);
    Line& line = lines_[task];
    line.over = true;
    if (line.awaited == 0) return;
    line.awaited = 0;
    name = edges_->tasks[task].name;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].state != Slot::State::kAwaited || edges_->edges[i].task != task) continue;
      slots_[i].state = Slot::State::kDone;
      waiting.emplace_back(edges_->edges[i].key, std::move(slots_[i].waiter));
    }
    absl::erase_if(in_loops_, [&](auto& entry) {
      const StatusOr<ParsedKey> parsed = ParsedKey::Parse(entry.first);
      if (entry.second.state != Slot::State::kAwaited || !parsed.ok() || parsed->send_task != name) return false;
      waiting.emplace_back(entry.first, std::move(entry.second.waiter));
      return true;
    });
  }
  std::sort(waiting.begin(), waiting.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [key, waiter] : waiting) waiter(WillNotCome(key, name));
}

StatusOr<SteppedTensors> LineTensors::TakeHeld(int task) {
  StepLine over;  // released without the lock
  MutexLock lock(&mu_);
  SteppedTensors held;
  Line& line = lines_[task];
  line.open = false;
  over = std::exchange(line.to, {});
  const std::vector<StepEdge>& edges = edges_->edges;
  const auto take = [&held](const StepEdge& edge, Slot* slot) {
    held.push_back({.number = edge.number, .item = std::exchange(slot->item, {})});
  };
  held.reserve(line.held.size());
  for (const int number : line.held) {
    if (edges[number].kind == StepEdge::Kind::kFetch && slots_[number].item.is_dead) {
      const StatusOr<ParsedKey> parsed = ParsedKey::Parse(edges[number].key);
      return Internal("the fetched tensor ", parsed.ok() ? parsed->tensor : edges[number].key,
                      " is dead: its branch was not taken");
    }
    take(edges[number], &slots_[number]);
  }
  // Tensors that waited for the rest of their group, which did not come.
  for (size_t i = 0; i < missing_.size(); ++i) {
    if (missing_[i] == 0) continue;
    for (const int number : edges_->groups[i]) {
      const StepEdge& edge = edges[number];
      if (edge.task == task && !edge.rides && slots_[number].state == Slot::State::kDone) take(edge, &slots_[number]);
    }
  }
  return held;
}

void LineTensors::Abort(const Status& why) {
  std::vector<Slot> slots;
  absl::flat_hash_map<std::string, Slot> in_loops;
  std::shared_ptr<const StepEdges> edges;
  Status reason;
  {
    MutexLock lock(&mu_);
    if (!aborted_.ok()) return;  // nothing has arrived and nobody waits since then
    aborted_ = reason = why;
    edges = edges_;
    for (Line& line : lines_) line.awaited = 0;
    for (Slot& slot : slots_) {
      // After a successful step there usually is none.
      if (slot.state != Slot::State::kAwaited && slot.state != Slot::State::kHere) continue;
      slots.resize(slots_.size());
      std::swap(slots[&slot - slots_.data()], slot);
      slot.state = Slot::State::kDone;
    }
    in_loops.swap(in_loops_);
  }
  const auto end = [&](absl::string_view key, Slot* slot) {
    if (slot->state == Slot::State::kAwaited) slot->waiter(WithPrefix(absl::StrCat("receiving ", key, ": "), reason));
  };
  for (size_t i = 0; i < slots.size(); ++i) end(edges->edges[i].key, &slots[i]);
  // Sorted by key, so that simulations are deterministic.
  std::vector<std::pair<absl::string_view, Slot*>> ordered;
  for (auto& [key, slot] : in_loops) ordered.emplace_back(key, &slot);
  std::sort(ordered.begin(), ordered.end());
  for (const auto& [key, slot] : ordered) end(key, slot);
}

void LineTensors::ListAwaited(const PeerSet& known, size_t first, std::vector<Awaited>* peers) {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].awaited == 0) continue;
    const StepEdges::Task& task = edges_->tasks[i];
    const Peer* const peer = known.Find(task.name);
    if (peer == nullptr) continue;
    const auto same = [&](const Awaited& awaited) { return awaited.worker == peer->worker; };
    if (std::any_of(peers->begin() + first, peers->end(), same)) continue;
    peers->push_back(
        {.task = peer->name, .address = peer->address, .worker = peer->worker, .incarnation = task.incarnation});
  }
}

void LineTensors::ListWaits(std::vector<Wait>* waits) {
  const auto add = [&](absl::string_view key, const std::string& task, absl::Time since) {
    if (Wait wait; DescribeTensorWait(key, task, step_id_, since, &wait)) waits->push_back(std::move(wait));
  };
  MutexLock lock(&mu_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const StepEdge& edge = edges_->edges[i];
    if (slots_[i].state == Slot::State::kAwaited) add(edge.key, edges_->tasks[edge.task].name, slots_[i].since);
  }
  for (const auto& [key, slot] : in_loops_) {
    const StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
    if (slot.state == Slot::State::kAwaited && parsed.ok()) add(key, std::string(parsed->send_task), slot.since);
  }
}

bool LineTensors::HasWaiters() {
  MutexLock lock(&mu_);
  return std::any_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.awaited > 0; });
}

bool LineTensors::Awaits(const std::string& task) {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].awaited > 0 && edges_->tasks[i].name == task) return true;
  }
  return false;
}

}  // namespace millrace
