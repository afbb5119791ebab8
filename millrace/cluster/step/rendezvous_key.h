// Rendezvous keys, under which tensors are sent from one task to another, and the records of transfers.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/executor/step_stats.h"
#include "millrace/runtime/rendezvous.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

// A key's parts, as views into it.
struct ParsedKey {
  absl::string_view send_device, recv_device, tensor;
  absl::string_view send_task, recv_task;  // the devices up to "/device:"
  uint64_t incarnation = 0;
  // INVALID_ARGUMENT quotes a malformed key.
  static StatusOr<ParsedKey> Parse(absl::string_view key);
};

// "layer1/read" of "edge_12_layer1/read".
absl::string_view SentTensorName(absl::string_view tensor);

// Describes the wait for a tensor of `task`, for a WaitRegistry. Returns false if the key is malformed.
bool DescribeTensorWait(absl::string_view key, const std::string& task, int64_t step_id, absl::Time since, Wait* wait);

// Records a tensor that arrived from another task. For a pushed tensor, which was not requested, start and end are both
// its arrival.
void NoteTransfer(StepStatsCollector* stats, absl::string_view key, const RendezvousItem& item, int64_t start_nanos,
                  int64_t end_nanos);

}  // namespace millrace
