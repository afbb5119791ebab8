// Parses any bytes as the file `checkpoint`. What parses must survive a round trip.
#include <cstddef>
#include <cstdint>

#include "millrace/train/checkpoint/checkpoint_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  const StatusOr<CheckpointState> state = ParseCheckpointState({reinterpret_cast<const char*>(data), size});
  if (!state.ok()) return 0;
  const std::string text = FormatCheckpointState(*state);
  const StatusOr<CheckpointState> again = ParseCheckpointState(text);
  MR_CHECK(again.ok() && again->latest == state->latest && FormatCheckpointState(*again) == text);
  return 0;
}
