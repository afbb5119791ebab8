// The measurements and their results.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/tools/bench_net/partner_link.h"
#include "millrace/tools/bench_net/ways.h"

namespace millrace::bench_net {

struct WayFigures {
  std::string name, title;
  Way::Kind kind = Way::Kind::kBetween;
  std::string note = {};             // why it could not be measured
  double round_trip_us = 0;          // with an answer of one byte; 0: not measured
  std::vector<double> seconds = {};  // the median for each size; 0: it would have taken too long
};

struct NetFigures {
  std::string where;  // "this host", "this host and NAME at HOST:PORT"
  int cores = 0;      // of this host
  std::vector<size_t> sizes;
  std::vector<WayFigures> ways;

  double GigabytesPerSecond(const WayFigures& way, size_t i) const;
  // The bandwidth of the fastest way between the two at that size; 0 if there is none.
  double Ceiling(size_t i) const;
};

struct MeasureOptions {
  size_t max_size = 0;
  double seconds = 20;  // the approximate total
  // Called before each measurement with a text like "TCP, 10 MB".
  std::function<void(const std::string&)> on_progress = nullptr;
};

// 1 KB, 10 KB, ... up to `max_size`, which is at least 1 KB.
std::vector<size_t> SizesUpTo(size_t max_size);
// "10 KB".
std::string SizeText(size_t size);
// Parses "10KB", "1 GB", "4096". INVALID_ARGUMENT says what is expected.
StatusOr<size_t> ParseSize(absl::string_view text);

// Fails if the partner is lost. A way that is not available gets a note.
StatusOr<NetFigures> MeasureWays(PartnerLink* partner, const MeasureOptions& options);

}  // namespace millrace::bench_net
