#include "millrace/device/gpu_layout.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

// "GPU:0 on card 1 (limit 1073741824 bytes)".
std::string Describe(absl::Span<const GpuPlace> places) {
  std::vector<std::string> texts;
  for (const GpuPlace& place : places) {
    texts.push_back(absl::StrCat("GPU:", texts.size(), " on card ", place.card));
    if (place.memory_limit > 0) absl::StrAppend(&texts.back(), " (limit ", place.memory_limit, " bytes)");
    if (place.priority != 0) absl::StrAppend(&texts.back(), " (priority ", place.priority, ")");
  }
  return absl::StrJoin(texts, ", ");
}

// The devices of one card that is not given as virtual GPUs.
StatusOr<std::vector<GpuPlace>> EqualParts(const GpuOptions& options, int number, const GpuCard& card) {
  int64_t limit = options.memory_limit;
  if (options.memory_fraction > 0) {
    limit = static_cast<int64_t>(options.memory_fraction * static_cast<double>(card.memory)) / options.devices_per_card;
  } else if (limit == 0 && options.devices_per_card > 1) {
    limit = card.memory / options.devices_per_card;
  }
  if (limit > card.memory / options.devices_per_card) {
    const std::string devices =
        options.devices_per_card == 1 ? "" : absl::StrCat(" for each of ", options.devices_per_card, " devices");
    return InvalidArgument("the memory limit of ", limit, " bytes", devices, " is above the ", card.memory,
                           " bytes of card ", number, " (", card.model, ")");
  }
  std::vector<GpuPlace> places;
  for (int part = 0; part < options.devices_per_card; ++part)
    places.push_back({.card = number, .part = part, .memory_limit = limit});
  return places;
}

StatusOr<std::vector<GpuPlace>> VirtualParts(absl::Span<const GpuOptions::VirtualGpu> gpus, int number,
                                             const GpuCard& card) {
  std::vector<GpuPlace> places;
  int64_t sum = 0;
  for (const GpuOptions::VirtualGpu& gpu : gpus) {
    if (gpu.priority < card.greatest_priority || gpu.priority > card.least_priority) {
      return InvalidArgument("a virtual device of card ", number, " (", card.model, ") has priority ", gpu.priority,
                             "; streams there have ", card.greatest_priority, " (first) to ", card.least_priority);
    }
    sum += std::min(gpu.memory_limit, card.memory + 1);  // so that the sum does not overflow
    if (sum > card.memory) {
      return InvalidArgument("the virtual devices of card ", number, " (", card.model, ") have more memory than its ",
                             card.memory, " bytes");
    }
    places.push_back({.card = number,
                      .part = static_cast<int>(places.size()),
                      .memory_limit = gpu.memory_limit,
                      .priority = gpu.priority});
  }
  return places;
}

}  // namespace

bool GpuOptions::is_default() const {
  return cards.empty() && memory_fraction == 0 && memory_limit == 0 && devices_per_card == 1 && virtual_gpus.empty();
}

Status CheckGpuOptions(const GpuOptions& options) {
  const double fraction = options.memory_fraction;
  if (!(fraction >= 0 && fraction <= 1))
    return InvalidArgument("the fraction of a GPU's memory is ", fraction, "; give one above 0 and up to 1");
  if (options.memory_limit < 0)
    return InvalidArgument("the memory limit of GPUs is ", options.memory_limit, " bytes; give one above 0");
  if (options.devices_per_card < 1)
    return InvalidArgument("the number of devices on each card is ", options.devices_per_card, "; give at least 1");
  if (fraction > 0 && options.memory_limit > 0)
    return InvalidArgument("give GPUs either a memory limit or a fraction of their memory, not both");
  for (size_t i = 0; i < options.cards.size(); ++i) {
    const int card = options.cards[i];
    if (card < 0) return InvalidArgument("the list of GPUs has the number ", card);
    if (std::count(options.cards.begin(), options.cards.end(), card) > 1)
      return InvalidArgument("the list of GPUs names ", card, " twice");
  }
  if (options.virtual_gpus.empty()) return absl::OkStatus();
  if (fraction > 0 || options.memory_limit > 0 || options.devices_per_card > 1) {
    return InvalidArgument(
        "virtual devices have memory limits of their own: give neither a fraction, a limit nor a number of devices "
        "with them");
  }
  for (const auto& gpus : options.virtual_gpus) {
    for (const auto& gpu : gpus) {
      if (gpu.memory_limit <= 0)
        return InvalidArgument("a virtual device has the memory limit ", gpu.memory_limit, "; give one above 0");
    }
  }
  return absl::OkStatus();
}

StatusOr<std::vector<GpuPlace>> LayOutGpus(const GpuOptions& options, absl::Span<const GpuCard> cards) {
  MR_RETURN_IF_ERROR(CheckGpuOptions(options));
  std::vector<int> used = options.cards;
  if (used.empty()) {
    used.resize(cards.size());
    std::iota(used.begin(), used.end(), 0);
  }
  for (const int card : used) {
    if (card >= static_cast<int>(cards.size())) {
      return InvalidArgument("the list of GPUs names ", card, ", and ", cards.size() == 1 ? "there is" : "there are",
                             " only ", cards.size(), " (CUDA_VISIBLE_DEVICES counts)");
    }
  }
  if (options.virtual_gpus.size() > used.size()) {
    return InvalidArgument("virtual devices are given for ", options.virtual_gpus.size(), " GPUs, and ", used.size(),
                           used.size() == 1 ? " is" : " are", " used");
  }
  struct Numbered {
    int ordinal;
    GpuPlace place;
  };
  std::vector<Numbered> all;
  for (size_t i = 0; i < used.size(); ++i) {
    const bool is_virtual = i < options.virtual_gpus.size() && !options.virtual_gpus[i].empty();
    MR_ASSIGN_OR_RETURN(const std::vector<GpuPlace> places,
                        is_virtual ? VirtualParts(options.virtual_gpus[i], used[i], cards[used[i]])
                                   : EqualParts(options, used[i], cards[used[i]]));
    for (size_t part = 0; part < places.size(); ++part)
      all.push_back({is_virtual ? options.virtual_gpus[i][part].ordinal : 0, places[part]});
  }
  std::stable_sort(all.begin(), all.end(), [](const Numbered& a, const Numbered& b) { return a.ordinal < b.ordinal; });
  std::vector<GpuPlace> places;
  for (const Numbered& one : all) places.push_back(one.place);
  return places;
}

StatusOr<std::vector<GpuPlace>> GpuLayout::Agree(const GpuOptions& options, absl::Span<const GpuCard> cards) {
  MutexLock lock(&mu_);
  if (agreed_ && options.is_default()) return *agreed_;
  MR_ASSIGN_OR_RETURN(std::vector<GpuPlace> places, LayOutGpus(options, cards));
  if (agreed_ && *agreed_ != places) {
    return InvalidArgument("the GPUs of this process are ", Describe(*agreed_),
                           ", as its first session or server had them, and cannot become ", Describe(places),
                           ": give the same options to the first one");
  }
  agreed_ = places;
  return places;
}

}  // namespace millrace
