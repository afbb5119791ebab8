// The bookkeeping of partial runs (Session::PartialRun): which feeds and fetches each call uses.
//
// The step's graph gets a _Recv in place of each feed and a _Send for each fetch. It runs like any other graph, waits
// for feeds that have not been given yet, and exchanges tensors with the calls through a rendezvous.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/callable_spec.h"
#include "millrace/graph/graph.h"
#include "millrace/runtime/rendezvous.h"

namespace millrace {

// What the calls of one partial run have fed and fetched so far, and may still feed and fetch. Thread-safe.
class PartialStepCalls {
 public:
  // Adds the _Recv and _Send nodes of the client's tensors to `graph`, with `device` as the other end. On success
  // `targets` receives the nodes that the graph must run.
  static StatusOr<std::unique_ptr<PartialStepCalls>> Prepare(Graph* graph, const CallableSpec& spec,
                                                             const std::string& device, uint64_t incarnation,
                                                             std::vector<std::string>* targets);

  // Records a call; INVALID_ARGUMENT if it is not allowed. Sets `*last` if nothing is left to feed or fetch.
  Status Begin(absl::Span<const Feed> feeds, absl::Span<const std::string> fetches, bool* last);

  // The rendezvous key of a tensor that the client feeds or fetches.
  std::string KeyOf(const std::string& tensor) const;

 private:
  PartialStepCalls(std::string device, uint64_t incarnation) : device_(std::move(device)), incarnation_(incarnation) {}

  const std::string device_;
  const uint64_t incarnation_;
  absl::flat_hash_map<std::string, absl::flat_hash_set<std::string>>
      needs_;  // for each fetch, the feeds that it depends on
  absl::flat_hash_map<std::string, DType> feed_types_;
  Mutex mu_;
  absl::flat_hash_set<std::string> open_feeds_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<std::string> open_fetches_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
