#include "millrace/cluster/collectives/step_sequence.h"

namespace millrace {
namespace {

// TensorFlow keeps the seven highest bits clear.
constexpr int64_t kStepIdMask = (int64_t{1} << 57) - 1;
// A leader that is further ahead or behind counts in another sequence.
constexpr int64_t kMostMissed = 1 << 10;

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
  const auto it = sequences_.find(graph_key);
  return it != sequences_.end() && !it->second.in_doubt;
}

void StepSequences::Doubt(int64_t graph_key) {
  MutexLock lock(&mu_);
  const auto it = sequences_.find(graph_key);
  if (it != sequences_.end()) it->second.in_doubt = true;
}

StatusOr<std::vector<int64_t>> StepSequences::Learn(int64_t graph_key, int64_t step_id) {
  step_id &= kStepIdMask;
  MutexLock lock(&mu_);
  const bool is_new = !sequences_.contains(graph_key);
  MR_ASSIGN_OR_RETURN(Sequence* const sequence, FindOrAdd(graph_key));
  std::vector<int64_t> left_out;
  if (!is_new && !sequence->in_doubt) return left_out;
  const int64_t ahead = step_id - sequence->next;
  const bool same = !is_new && ahead > -kMostMissed && ahead < kMostMissed;
  // A leader that is behind makes the steps that this master has made, and learns that they have failed here.
  if (same && ahead <= 0) step_id = sequence->next;
  for (int64_t id = sequence->next; same && id < step_id; ++id) left_out.push_back(id);
  sequence->next = step_id;
  sequence->in_doubt = false;
  return left_out;
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
