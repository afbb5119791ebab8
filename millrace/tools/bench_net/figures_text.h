// The figures as a table, a plot and JSON.
#pragma once

#include <string>

#include "millrace/tools/bench_net/figures.h"

namespace millrace::bench_net {

// A row for each way and a column for each size, in GB/s. Below each of Millrace's rows is its share of the fastest way
// between the two.
std::string FiguresTable(const NetFigures& figures);

// A plot of GB/s over size, both logarithmic, with a legend. Uses Unicode unless `ascii`.
std::string FiguresPlot(const NetFigures& figures, bool ascii);

// One JSON object; `millrace status --ceilings` reads it.
std::string FiguresJson(const NetFigures& figures);

}  // namespace millrace::bench_net
