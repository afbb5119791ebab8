// A table of text with a heading.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace millrace {

// Aligns cells in columns. Each column is as wide as its widest cell, except for the last.
class TextTable {
 public:
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void AppendTo(absl::string_view heading, std::string* text) const {
    if (rows_.empty()) return;
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    for (size_t r = 0; r < rows_.size(); ++r) {
      std::string line = absl::StrFormat("  %-10s", r == 0 ? heading : "");
      for (size_t i = 0; i < rows_[r].size(); ++i) {
        const bool last = i + 1 == rows_[r].size();
        absl::StrAppend(&line, rows_[r][i], last ? "" : std::string(widths[i] - rows_[r][i].size() + 2, ' '));
      }
      absl::StrAppend(text, absl::StripTrailingAsciiWhitespace(line), "\n");
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace millrace
