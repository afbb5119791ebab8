#include "millrace/tools/bench_net/figures.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace millrace::bench_net {
namespace {

using std::chrono::steady_clock;

constexpr size_t kFirstSize = 1000;

// The seconds that `count` transfers take.
StatusOr<double> Time(const Transfer& transfer, size_t size, int count) {
  const auto begin = steady_clock::now();
  for (int i = 0; i < count; ++i) MR_RETURN_IF_ERROR(transfer(size));
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

// The median duration of a transfer, from as many transfers as fit into `budget` seconds, but at least three unless one
// alone takes longer than that.
StatusOr<double> MedianTime(const Transfer& transfer, size_t size, double budget) {
  constexpr double kShortest = 20e-6;  // below this the cost of reading the clock would matter
  constexpr size_t kMost = 2000;
  // Warm-up, not counted: brings caches, TCP windows and pools to their steady state.
  MR_ASSIGN_OR_RETURN(const double first, Time(transfer, size, 1));
  const int count = first >= kShortest / 2 ? 1 : static_cast<int>(std::min(1000.0, kShortest / std::max(first, 1e-8)));
  std::vector<double> times;
  double spent = first;
  while (times.size() < kMost && (spent < budget || (times.size() < 3 && spent < 3 * budget) || times.empty())) {
    MR_ASSIGN_OR_RETURN(const double time, Time(transfer, size, count));
    times.push_back(time / count);
    spent += time;
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

double NetFigures::GigabytesPerSecond(const WayFigures& way, size_t i) const {
  return i < way.seconds.size() && way.seconds[i] > 0 ? static_cast<double>(sizes[i]) / way.seconds[i] / 1e9 : 0;
}

double NetFigures::Ceiling(size_t i) const {
  double most = 0;
  for (const WayFigures& way : ways) {
    if (way.kind == Way::Kind::kBetween) most = std::max(most, GigabytesPerSecond(way, i));
  }
  return most;
}

std::vector<size_t> SizesUpTo(size_t max_size) {
  std::vector<size_t> sizes;
  for (size_t size = kFirstSize; size <= max_size && size <= 1000000000; size *= 10) sizes.push_back(size);
  return sizes;
}

std::string SizeText(size_t size) {
  if (size >= 1000000000) return absl::StrCat(size / 1000000000, " GB");
  if (size >= 1000000) return absl::StrCat(size / 1000000, " MB");
  return size >= 1000 ? absl::StrCat(size / 1000, " KB") : absl::StrCat(size, " B");
}

StatusOr<size_t> ParseSize(absl::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string unit = absl::AsciiStrToUpper(absl::StripAsciiWhitespace(text.substr(digits)));
  uint64_t number, factor = 0;
  for (const auto& [name, value] : {std::pair("", 1), std::pair("B", 1), std::pair("KB", 1000),
                                    std::pair("MB", 1000000), std::pair("GB", 1000000000)}) {
    if (unit == name) factor = value;
  }
  if (factor == 0 || !absl::SimpleAtoi(text.substr(0, digits), &number) || number > uint64_t{1000000000000} / factor) {
    return InvalidArgument("'", text, "' is not a size; use for example 100KB, 10MB or 1GB");
  }
  return number * factor;
}

StatusOr<NetFigures> MeasureWays(PartnerLink* partner, const MeasureOptions& options) {
  NetFigures figures{.where = "this host",
                     .cores = static_cast<int>(std::thread::hardware_concurrency()),
                     .sizes = SizesUpTo(options.max_size),
                     .ways = {}};
  if (figures.sizes.empty()) return InvalidArgument("there is not enough memory for any size");
  MR_RETURN_IF_ERROR(partner->MakeMemory(figures.sizes.back()));
  std::vector<Way> ways = WaysTo(partner);
  const double budget = options.seconds / static_cast<double>(ways.size() * (figures.sizes.size() + 1));
  const auto progress = [&](const std::string& what) {
    if (options.on_progress) options.on_progress(what);
  };
  for (Way& way : ways) {
    WayFigures& row = figures.ways.emplace_back(WayFigures{.name = way.name, .title = way.title, .kind = way.kind});
    row.seconds.assign(figures.sizes.size(), 0);
    progress(way.title);
    const StatusOr<Transfer> transfer = way.open();
    if (!transfer.ok()) {
      row.note = std::string(transfer.status().message());
      continue;
    }
    if (way.kind != Way::Kind::kCopy) {
      MR_ASSIGN_OR_RETURN(const double seconds, MedianTime(*transfer, 1, budget));
      row.round_trip_us = seconds * 1e6;
    }
    for (size_t i = 0; i < figures.sizes.size(); ++i) {
      // Skips a size that would take most of the remaining time, and all larger ones.
      if (i > 0 && (row.seconds[i - 1] == 0 || 10 * row.seconds[i - 1] > options.seconds / 4)) break;
      progress(absl::StrCat(way.title, ", ", SizeText(figures.sizes[i])));
      MR_ASSIGN_OR_RETURN(row.seconds[i], MedianTime(*transfer, figures.sizes[i], budget));
    }
  }
  return figures;
}

}  // namespace millrace::bench_net
