#include "millrace/strategy/horovod/ready_table.h"

#include <algorithm>
#include <utility>

namespace millrace::hvd {

using Kind = NamedCollective::Kind;
using collective::Reduction;

void ReadyTable::Add(int rank, const Report& report) {
  for (const Announcement& what : report.announcements) {
    DropSlot(what.name);
    const auto [it, is_new] = announced_.try_emplace(what.name);
    if (is_new) {
      it->second.by_rank.resize(ranks_);
      order_.push_back(what.name);
    }
    it->second.by_rank[rank] = what;
  }
  if (report.joins) {
    joined_[rank] = true;
    last_joined_ = rank;
  }
}

std::vector<int> ReadyTable::Missing(const std::string& name) const {
  std::vector<int> missing;
  const auto it = announced_.find(name);
  if (it == announced_.end()) return missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!it->second.by_rank[rank] && !joined_[rank]) missing.push_back(rank);
  }
  return missing;
}

std::vector<ReadyTable::Decision> ReadyTable::TakeReady() {
  std::vector<Decision> ready;
  std::vector<std::string> rest;
  for (std::string& name : order_) {
    if (!Missing(name).empty()) {
      rest.push_back(std::move(name));
      continue;
    }
    const auto it = announced_.find(name);
    ready.push_back(Decide(it->second));
    announced_.erase(it);
    const Decision& decision = ready.back();
    // The rows of an allgather may differ each time.
    if (decision.status.ok() && decision.what.kind != Kind::kAllgather) AddSlot(decision.what);
  }
  order_ = std::move(rest);
  return ready;
}

ReadyTable::Decision ReadyTable::Decide(const Announced& announced) const {
  Decision decision;
  int first = -1;
  for (int rank = 0; rank < ranks_ && decision.status.ok(); ++rank) {
    const std::optional<Announcement>& what = announced.by_rank[rank];
    if (!what) continue;
    if (first < 0) {
      first = rank;
      decision.what = *what;
    } else {
      decision.status = CheckSame(first, decision.what, rank, *what);
    }
  }
  if (decision.status.ok()) decision.status = CheckJoined(decision.what);
  return decision;
}

Status ReadyTable::CheckJoined(const Announcement& what) const {
  const auto it = std::find(joined_.begin(), joined_.end(), true);
  if (it == joined_.end()) return absl::OkStatus();
  if (what.kind == Kind::kBroadcast && joined_[what.root])
    return FailedPrecondition(Describe(what), ": rank ", what.root, " has joined and has nothing to broadcast");
  if (what.kind == Kind::kAllreduce && what.reduction != Reduction::kSum && what.reduction != Reduction::kMean)
    return FailedPrecondition(Describe(what), ": rank ", it - joined_.begin(),
                              " has joined, and only sums and means go on without it");
  return absl::OkStatus();
}

std::optional<int> ReadyTable::TakeJoin() {
  if (std::find(joined_.begin(), joined_.end(), false) != joined_.end()) return std::nullopt;
  joined_.assign(ranks_, false);
  return std::exchange(last_joined_, -1);
}

int ReadyTable::FindSlot(const Announcement& what) const {
  const auto it = slot_of_.find(what.name);
  return it == slot_of_.end() || *slots_[it->second] != what ? -1 : static_cast<int>(it->second);
}

std::optional<ReadyTable::Decision> ReadyTable::DecideSlot(size_t slot) const {
  if (!slots_[slot]) return std::nullopt;
  return Decision{.what = *slots_[slot], .status = CheckJoined(*slots_[slot])};
}

void ReadyTable::AddSlot(const Announcement& what) {
  const auto free = std::find(slots_.begin(), slots_.end(), std::nullopt);
  if (free == slots_.end() && slots_.size() >= most_slots_) return;
  slot_of_[what.name] = static_cast<size_t>(free - slots_.begin());
  if (free == slots_.end()) {
    slots_.emplace_back(what);
  } else {
    *free = what;
  }
}

void ReadyTable::DropSlot(const std::string& name) {
  const auto it = slot_of_.find(name);
  if (it == slot_of_.end()) return;
  slots_[it->second].reset();
  slot_of_.erase(it);
}

}  // namespace millrace::hvd
