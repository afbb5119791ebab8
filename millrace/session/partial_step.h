// Steps in several calls, apart from how they run.
//
// The step's graph gets a _Recv in place of each feed and a _Send behind each fetch; it runs as any other, waiting where a feed has
// not come, and the calls meet it at a rendezvous.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/session/session.h"

namespace millrace {

// What the calls of one partial step have done and may still do. Thread-safe.
class PartialStepCalls {
 public:
  // Puts the client's edges into `graph`, as if they came from `device` and led there. On success `targets` is what the graph is to
  // run for.
  static StatusOr<std::unique_ptr<PartialStepCalls>> Prepare(Graph* graph, const CallableSpec& spec, const std::string& device,
                                                             uint64_t incarnation, std::vector<std::string>* targets);

  // Takes note of a call, or says what is wrong with it: INVALID_ARGUMENT. `*last` when nothing is left to feed or fetch.
  Status Begin(absl::Span<const Feed> feeds, absl::Span<const std::string> fetches, bool* last);

  // The key under which the step's rendezvous knows a tensor of the client.
  std::string KeyOf(const std::string& tensor) const;

 private:
  PartialStepCalls(std::string device, uint64_t incarnation) : device_(std::move(device)), incarnation_(incarnation) {}

  const std::string device_;
  const uint64_t incarnation_;
  absl::flat_hash_map<std::string, absl::flat_hash_set<std::string>> needs_;  // for each fetch, the feeds behind it
  absl::flat_hash_map<std::string, DType> feed_types_;
  Mutex mu_;
  absl::flat_hash_set<std::string> open_feeds_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<std::string> open_fetches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
