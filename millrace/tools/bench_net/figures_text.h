// Figures for people and for programs.
#pragma once

#include <string>

#include "millrace/tools/bench_net/figures.h"

namespace millrace::bench_net {

// A row for each way and a column for each size, in GB/s; under each of Millrace's rows its share of the fastest way between the two.
std::string FiguresTable(const NetFigures& figures);

// GB/s over size, both by powers of ten: a mark for each figure, and what each mark means. Without `ascii` in Unicode.
std::string FiguresPlot(const NetFigures& figures, bool ascii);

// One JSON object; `millrace status --ceilings` reads it.
std::string FiguresJson(const NetFigures& figures);

}  // namespace millrace::bench_net
