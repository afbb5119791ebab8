#include "millrace/tools/bench_net/figures_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace millrace::bench_net {
namespace {

using nlohmann::json;

constexpr int kTitleWidth = 18, kTripWidth = 9, kSizeWidth = 8;

// Three significant digits, as far as they fit; a speed that would round to 0.000 shows its first digit.
std::string NumberText(double number) {
  if (number > 0 && number < 0.0005) return number < 0.0000095 ? "< 1e-5" : absl::StrFormat("%.5f", number);
  return absl::StrFormat("%.*f", number >= 99.95 ? 0 : number >= 9.995 ? 1 : number >= 0.9995 ? 2 : 3, number);
}

std::string ShareText(double part, double whole) {
  if (part <= 0 || whole <= 0) return "-";
  const double percent = 100 * part / whole;
  return absl::StrFormat("%.*f %%", percent < 9.5 ? 1 : 0, percent);
}

void AppendRow(const std::string& title, const std::string& trip, const std::vector<std::string>& cells,
               std::string* text) {
  std::string line = absl::StrFormat("%-*s%*s", kTitleWidth, title, kTripWidth, trip);
  for (const std::string& cell : cells) absl::StrAppendFormat(&line, "%*s", kSizeWidth, cell);
  absl::StrAppend(text, absl::StripTrailingAsciiWhitespace(line), "\n");
}

}  // namespace

std::string FiguresTable(const NetFigures& figures) {
  std::string text = absl::StrCat("GB/s of ", figures.where, ", ", figures.cores,
                                  figures.cores == 1 ? " core" : " cores", " here\n\n");
  std::vector<std::string> heads;
  for (const size_t size : figures.sizes) heads.push_back(SizeText(size));
  AppendRow("", "trip", heads, &text);
  double best_trip = 0;
  bool left_out = false;
  for (const WayFigures& way : figures.ways) {
    if (way.kind == Way::Kind::kBetween && way.round_trip_us > 0 && (best_trip == 0 || way.round_trip_us < best_trip))
      best_trip = way.round_trip_us;
  }
  for (const WayFigures& way : figures.ways) {
    if (!way.note.empty()) {
      absl::StrAppend(&text, absl::StrFormat("%-*s", kTitleWidth, way.title), "  ", way.note, "\n");
      continue;
    }
    std::vector<std::string> numbers, shares;
    for (size_t i = 0; i < figures.sizes.size(); ++i) {
      const double speed = figures.GigabytesPerSecond(way, i);
      left_out |= speed == 0;
      numbers.push_back(speed > 0 ? NumberText(speed) : "-");
      shares.push_back(ShareText(speed, figures.Ceiling(i)));
    }
    const bool trips = way.round_trip_us > 0;
    AppendRow(way.title, trips ? absl::StrCat(NumberText(way.round_trip_us), " us") : "", numbers, &text);
    if (way.kind == Way::Kind::kMillrace)
      AppendRow("  of the fastest", ShareText(best_trip, way.round_trip_us), shares, &text);
  }
  if (left_out) absl::StrAppend(&text, "-: would have taken too long; raise --seconds to measure it\n");
  return text;
}

std::string FiguresJson(const NetFigures& figures) {
  json all = {{"where", figures.where}, {"cores", figures.cores}, {"sizes", figures.sizes}, {"ways", json::array()}};
  const auto or_null = [](double number) { return number > 0 ? json(number) : json(nullptr); };
  for (const WayFigures& way : figures.ways) {
    json row = {{"name", way.name},
                {"kind", way.kind == Way::Kind::kCopy      ? "copy"
                         : way.kind == Way::Kind::kBetween ? "ceiling"
                                                           : "millrace"},
                {"round_trip_us", or_null(way.round_trip_us)},
                {"gigabytes_per_second", json::array()},
                {"share_of_ceiling", json::array()}};
    if (!way.note.empty()) row["note"] = way.note;
    for (size_t i = 0; i < figures.sizes.size(); ++i) {
      const double speed = figures.GigabytesPerSecond(way, i), ceiling = figures.Ceiling(i);
      row["gigabytes_per_second"].push_back(or_null(speed));
      row["share_of_ceiling"].push_back(or_null(ceiling > 0 ? speed / ceiling : 0));
    }
    all["ways"].push_back(std::move(row));
  }
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace millrace::bench_net
