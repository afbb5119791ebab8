#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "millrace/tools/bench_net/figures_text.h"

namespace millrace::bench_net {
namespace {

constexpr int kRowsPerDecade = 4, kColumnsPerSize = 9, kAxisWidth = 7;

// A grid of characters, each a piece of UTF-8.
class Grid {
 public:
  Grid(int rows, int columns) : rows_(rows, std::vector<std::string>(columns, " ")) {}
  int rows() const { return static_cast<int>(rows_.size()); }
  void Put(int row, int column, const std::string& mark) {
    if (row >= 0 && row < rows() && column >= 0 && column < static_cast<int>(rows_[row].size()))
      rows_[row][column] = mark;
  }
  bool IsFree(int row, int column) const { return row >= 0 && row < rows() && rows_[row][column] == " "; }
  std::string Line(int row) const {
    std::string line;
    for (const std::string& cell : rows_[row]) line += cell;
    return line;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string MarkOf(size_t way, bool millrace, size_t nth_of_millrace, bool ascii) {
  static const std::vector<std::string> unicode = {"○", "●", "◆", "▲", "■", "▼"};
  static const std::vector<std::string> unicode_millrace = {"★", "✚", "✖", "◉"};
  if (ascii) return std::string(1, millrace ? static_cast<char>('A' + nth_of_millrace % 26) : "oxvut#"[way % 6]);
  return millrace ? unicode_millrace[nth_of_millrace % unicode_millrace.size()] : unicode[way % unicode.size()];
}

// Draws dots from one figure to the next, where the grid is free.
void DrawLine(double from, double to, int column, bool ascii, Grid* grid) {
  for (int i = 1; i < kColumnsPerSize; ++i) {
    const int row = static_cast<int>(std::lround(from + (to - from) * i / kColumnsPerSize));
    if (grid->IsFree(row, column + i)) grid->Put(row, column + i, ascii ? "." : "·");
  }
}

}  // namespace

std::string FiguresPlot(const NetFigures& figures, bool ascii) {
  double least = 0, most = 0;
  for (const WayFigures& way : figures.ways) {
    for (size_t i = 0; i < figures.sizes.size(); ++i) {
      const double speed = figures.GigabytesPerSecond(way, i);
      if (speed <= 0) continue;
      least = least == 0 ? speed : std::min(least, speed);
      most = std::max(most, speed);
    }
  }
  if (most == 0) return "";
  // A clock that stands still between two readings must not make the plot infinite.
  const int top = static_cast<int>(std::ceil(std::log10(std::min(most, 1e6)))),
            bottom = std::min(top - 1, static_cast<int>(std::floor(std::log10(std::max(least, 1e-6)))));
  Grid grid((top - bottom) * kRowsPerDecade + 1, kColumnsPerSize * static_cast<int>(figures.sizes.size()));
  const auto row_of = [&](double speed) { return (top - std::log10(std::clamp(speed, 1e-6, 1e6))) * kRowsPerDecade; };
  const auto column_of = [](size_t i) { return static_cast<int>(i) * kColumnsPerSize + kColumnsPerSize / 2; };
  std::string legend;
  // Marks are drawn after all lines, so that no line covers them, and Millrace's are drawn last.
  for (const bool marks : {false, true}) {
    size_t millrace_ways = 0;
    for (size_t w = 0; w < figures.ways.size(); ++w) {
      const WayFigures& way = figures.ways[w];
      if (!way.note.empty()) continue;
      const bool millrace = way.kind == Way::Kind::kMillrace;
      const std::string mark = MarkOf(w, millrace, millrace_ways, ascii);
      millrace_ways += millrace;
      if (marks) absl::StrAppend(&legend, legend.empty() ? "" : "   ", mark, " ", way.title);
      for (size_t i = 0; i < figures.sizes.size(); ++i) {
        const double speed = figures.GigabytesPerSecond(way, i), next = figures.GigabytesPerSecond(way, i + 1);
        if (speed <= 0) continue;
        if (marks) {
          grid.Put(static_cast<int>(std::lround(row_of(speed))), column_of(i), mark);
        } else if (next > 0) {
          DrawLine(row_of(speed), row_of(next), column_of(i), ascii, &grid);
        }
      }
    }
  }
  std::string text;
  for (int row = 0; row < grid.rows(); ++row) {
    const bool decade = row % kRowsPerDecade == 0;
    const std::string label = decade     ? absl::StrFormat("%g", std::pow(10, top - row / kRowsPerDecade))
                              : row == 1 ? "GB/s"
                                         : "";
    const std::string axis = ascii ? (decade ? "+" : "|") : (decade ? "┤" : "│");
    absl::StrAppend(
        &text, absl::StripTrailingAsciiWhitespace(absl::StrFormat("%*s %s%s", kAxisWidth, label, axis, grid.Line(row))),
        "\n");
  }
  std::string sizes(kAxisWidth + 2, ' ');
  for (const size_t size : figures.sizes) {
    const std::string label = SizeText(size);
    const size_t before = (kColumnsPerSize + 1 - label.size()) / 2;
    absl::StrAppend(&sizes, std::string(before, ' '), label, std::string(kColumnsPerSize - before - label.size(), ' '));
  }
  absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(sizes), "\n", std::string(kAxisWidth + 2, ' '), legend,
                  "\n");
  return text;
}

}  // namespace millrace::bench_net
