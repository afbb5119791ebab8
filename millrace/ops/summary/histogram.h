// Histograms for TensorBoard, with bucket limits that grow by 10 %.
#pragma once

#include <vector>

#include "millrace/proto/summary.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

class Histogram {
 public:
  Histogram();

  // `value` must be finite.
  void Add(double value);
  // Merges runs of empty buckets.
  void ToProto(pb::HistogramProto* proto) const;

 private:
  double min_, max_;
  double num_ = 0, sum_ = 0, sum_squares_ = 0;
  std::vector<double> counts_;
};

}  // namespace millrace
