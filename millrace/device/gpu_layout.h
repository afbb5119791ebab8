// Which GPU devices a process has: the cards of the machine, all or some, each as one device or as several.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"

namespace millrace {

// What a task asks for. The default is every card as one device without a limit.
struct GpuOptions {
  // The cards to use, in this order, by their numbers among those in CUDA_VISIBLE_DEVICES; if empty, all.
  std::vector<int> cards = {};
  // The share of each card's memory that this process may use, up to 1; 0: no limit.
  double memory_fraction = 0;
  // The bytes that each device may use; 0: no limit. Not together with memory_fraction.
  int64_t memory_limit = 0;
  // How many devices each card is. They share its memory, or what memory_fraction leaves of it, equally, unless
  // memory_limit is set.
  int devices_per_card = 1;
  struct VirtualGpu {
    int64_t memory_limit = 0;  // in bytes, above 0
    int priority = 0;          // of its streams; a lower number is served first
    int ordinal = 0;           // devices are numbered by this, then by card, then in the order given
  };
  // Instead of the three above: the devices of each card. Cards without an entry, or with an empty one, are one device.
  std::vector<std::vector<VirtualGpu>> virtual_gpus = {};

  bool is_default() const;
};

struct GpuCard {
  std::string model;
  int64_t memory = 0;                             // bytes
  int least_priority = 0, greatest_priority = 0;  // of streams; the greatest has the lowest number
};

// One GPU device.
struct GpuPlace {
  int card = 0;
  int part = 0;              // of the devices on this card
  int64_t memory_limit = 0;  // bytes; 0: none
  int priority = 0;
  friend bool operator==(const GpuPlace&, const GpuPlace&) = default;
};

// Errors are in the options alone: INVALID_ARGUMENT that names the value.
Status CheckGpuOptions(const GpuOptions& options);

// The devices /device:GPU:0, 1, ... for the options. INVALID_ARGUMENT if they ask for what the cards do not have.
StatusOr<std::vector<GpuPlace>> LayOutGpus(const GpuOptions& options, absl::Span<const GpuCard> cards);

// The layout of one process. Sessions and servers of a process share its devices, so the first one decides; a later one
// that has no wishes takes what there is. Thread-safe.
class GpuLayout {
 public:
  // INVALID_ARGUMENT if the options ask for another layout than that of before.
  StatusOr<std::vector<GpuPlace>> Agree(const GpuOptions& options, absl::Span<const GpuCard> cards);

 private:
  Mutex mu_;
  std::optional<std::vector<GpuPlace>> agreed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
