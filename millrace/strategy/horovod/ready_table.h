// Which operations all ranks have submitted. Every rank has a table and feeds it the same reports in the same order, so
// all tables are equal and all ranks carry out the same operations in the same order without a coordinator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/strategy/horovod/announcement.h"

namespace millrace::hvd {

// Not thread-safe.
class ReadyTable {
 public:
  // Keeps at most `most_slots` slots.
  ReadyTable(int ranks, size_t most_slots) : ranks_(ranks), most_slots_(most_slots), joined_(ranks, false) {}

  // An operation that all ranks must carry out, or the reason why none of them can.
  struct Decision {
    Announcement what;
    Status status = absl::OkStatus();
  };

  // What rank `rank` has newly submitted.
  void Add(int rank, const Report& report);
  // The operations that all ranks have announced, except those that have joined. Those that can be repeated get a slot.
  std::vector<Decision> TakeReady();
  // If all ranks have joined: the one that did so last. Nobody has joined afterwards.
  std::optional<int> TakeJoin();
  bool joined(int rank) const { return joined_[rank]; }

  // Slots: operations that were agreed on before. In later rounds each rank says by one byte that it has submitted it
  // again. A slot is lost when a rank announces something else under its name.
  size_t num_slots() const { return slots_.size(); }
  // -1 if there is none.
  int FindSlot(const Announcement& what) const;
  // Of a slot for which all ranks have a byte; nullopt if it is empty.
  std::optional<Decision> DecideSlot(size_t slot) const;

  // The ranks that have neither announced it nor joined; empty if nobody has announced it.
  std::vector<int> Missing(const std::string& name) const;

 private:
  struct Announced {
    std::vector<std::optional<Announcement>> by_rank;
  };

  Decision Decide(const Announced& announced) const;
  Status CheckJoined(const Announcement& what) const;
  void AddSlot(const Announcement& what);
  void DropSlot(const std::string& name);

  const int ranks_;
  const size_t most_slots_;
  std::vector<bool> joined_;
  int last_joined_ = -1;
  std::vector<std::string> order_;  // names in the order of the first announcement
  absl::flat_hash_map<std::string, Announced> announced_;
  std::vector<std::optional<Announcement>> slots_;
  absl::flat_hash_map<std::string, size_t> slot_of_;
};

}  // namespace millrace::hvd
