// The ids of steps with collective ops, which the masters of several tasks run together.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"

namespace millrace {

// Buffers are exchanged within a step, so the steps that several masters run together must have the same id. The
// masters that run graphs with the same key (RunOptions.experimental.collective_graph_key) count from an id that the
// leader of the groups draws. Every attempt takes the next id, also after a failure, so the masters stay in step. After
// a failure a master asks the leader again: it may have missed a step, or the leader may have been restarted.
// Thread-safe.
class StepSequences {
 public:
  static constexpr size_t kMaxSequences = 1 << 12;

  // `random` draws the first id of a sequence.
  explicit StepSequences(std::function<uint64_t()> random) : random_(std::move(random)) {}

  // What the leader answers: the id of the oldest step that is running here, or else the next. RESOURCE_EXHAUSTED if
  // there are too many keys.
  StatusOr<int64_t> Current(int64_t graph_key);
  // True if the sequence is known and not in doubt, so that Begin may be called.
  bool Has(int64_t graph_key) const;
  // The leader has to be asked before the next step.
  void Doubt(int64_t graph_key);
  // Sets what the leader answered; a no-op if the sequence is known and not in doubt. If the leader is ahead in the
  // same sequence, returns the ids that are left out.
  StatusOr<std::vector<int64_t>> Learn(int64_t graph_key, int64_t step_id);
  // The id of a step that begins, and its end.
  StatusOr<int64_t> Begin(int64_t graph_key);
  void End(int64_t graph_key, int64_t step_id);
  // Forgets all sequences in which no step is running.
  void Clear();

 private:
  struct Sequence {
    int64_t next = 0;
    std::set<int64_t> running = {};
    bool in_doubt = false;
  };
  StatusOr<Sequence*> FindOrAdd(int64_t graph_key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<uint64_t()> random_;
  mutable Mutex mu_;
  absl::flat_hash_map<int64_t, Sequence> sequences_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
