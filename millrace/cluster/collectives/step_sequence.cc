#include "millrace/cluster/collectives/step_sequence.h"

namespace millrace {
namespace {

// TensorFlow keeps the seven highest bits clear.
constexpr int64_t kStepIdMask = (int64_t{1} << 57) - 1;

}  // namespace

StatusOr<StepSequences::Sequence*> StepSequences::FindOrAdd(int64_t graph_key) {
  const auto it = sequences_.find(graph_key);
  if (it != sequences_.end()) return &it->second;
  if (sequences_.size() >= kMaxSequences) {
    return ResourceExhausted("there are ", kMaxSequences, " collective graph keys already; ", graph_key,
                             " is one too many");
  }
  Sequence& sequence = sequences_[graph_key];
  sequence.next = static_cast<int64_t>(random_()) & kStepIdMask;
  return &sequence;
}

StatusOr<int64_t> StepSequences::Current(int64_t graph_key) {
  MutexLock lock(&mu_);
  MR_ASSIGN_OR_RETURN(const Sequence* const sequence, FindOrAdd(graph_key));
  return sequence->running.empty() ? sequence->next : *sequence->running.begin();
}

bool StepSequences::Has(int64_t graph_key) const {
  MutexLock lock(&mu_);
  return sequences_.contains(graph_key);
}

Status StepSequences::Learn(int64_t graph_key, int64_t step_id) {
  MutexLock lock(&mu_);
  const bool is_new = !sequences_.contains(graph_key);
  MR_ASSIGN_OR_RETURN(Sequence* const sequence, FindOrAdd(graph_key));
  if (is_new) sequence->next = step_id & kStepIdMask;
  return absl::OkStatus();
}

StatusOr<int64_t> StepSequences::Begin(int64_t graph_key) {
  MutexLock lock(&mu_);
  MR_ASSIGN_OR_RETURN(Sequence* const sequence, FindOrAdd(graph_key));
  const int64_t step_id = sequence->next;
  sequence->next = (step_id + 1) & kStepIdMask;
  sequence->running.insert(step_id);
  return step_id;
}

void StepSequences::End(int64_t graph_key, int64_t step_id) {
  MutexLock lock(&mu_);
  const auto it = sequences_.find(graph_key);
  if (it != sequences_.end()) it->second.running.erase(step_id);
}

void StepSequences::Clear() {
  MutexLock lock(&mu_);
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    if (it->second.running.empty()) {
      sequences_.erase(it++);
    } else {
      ++it;
    }
  }
}

}  // namespace millrace
