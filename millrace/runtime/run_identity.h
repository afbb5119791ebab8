// The identity of a run: what lets the tasks recognise a run that is made again after a failure.
#pragma once

#include <cstdint>

namespace millrace {

// Whoever may repeat a run gives each run an identity and repeats it under the same one, over the same session, another
// session or another master. A task then applies each change of state of the run once; see RunRecords.
struct RunIdentity {
  // 64 random bits for each client; 0: the run has no identity, and a repetition counts as another run.
  uint64_t client = 0;
  // The runs of a client count up.
  int64_t number = 0;
  // The oldest run of the client that it may still repeat. Tasks forget the earlier ones.
  int64_t oldest = 0;
  // Counts the repetitions of this run. A message of an earlier attempt that arrives after a later one is refused.
  int64_t attempt = 0;

  bool given() const { return client != 0; }

  // The identity of the first run of a new client.
  static RunIdentity OfNewClient();
  // The identity of the next run of a client that repeats only its last one.
  RunIdentity Next() const { return {.client = client, .number = number + 1, .oldest = number + 1, .attempt = 0}; }
};

}  // namespace millrace
