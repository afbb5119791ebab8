// Predicts the steps per second of a job with another number of ps tasks and workers, from one measured run.
//
// The model is a closed queueing network (mean value analysis): each worker is a customer that thinks (its own work on
// a step), then uses the ps tasks, all at once: their cores and their links, where it queues behind the others. The
// costs per step are measured; the thinking time is what makes the model give the measured speed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/cluster/watch/task_rates.h"
#include "nlohmann/json.hpp"

namespace millrace::dashboard {

// What one run cost.
struct MeasuredRun {
  int ps = 0, workers = 0;
  double steps_per_second = 0;         // of all workers together
  double ps_seconds = 0;               // of processor time of all ps tasks together, per step
  double worker_seconds = 0;           // likewise of its worker
  double bytes_out = 0, bytes_in = 0;  // sent and received by all ps tasks together, per step
  double pause_seconds = 0;            // of a worker between two of its steps
  double ps_cores = 0;                 // that each ps may use
  double worker_parallelism = 1;       // cores that a worker uses at once
  double link = 0;                     // bytes per second of a ps in each direction; 0: not known, no limit
  bool between_hosts = false;
  // Cores of the host that all tasks share; 0: they do not share one.
  double host_cores = 0;
  bool synchronous = false;  // all workers wait for each other in every step
};

struct PlannedRun {
  int ps = 1, workers = 1;
  double link = 0;         // bytes per second; 0: as measured
  bool own_hosts = false;  // each task has a host of its own, whatever was measured
};

struct Prediction {
  double steps_per_second = 0;  // of all workers together; synchronous: of one
  // What binds: "workers", "ps_cores", "ps_link" or "host_cores", and its utilisation, 0 to 1.
  std::string binds = {};
  double busy = 0;
};

// FAILED_PRECONDITION says what the run lacks: ps tasks, workers that drive steps.
StatusOr<MeasuredRun> MeasureRun(absl::Span<const TaskRate> rates);
// Requires ps and workers of at least 1 in both. A pure function.
Prediction Predict(const MeasuredRun& run, const PlannedRun& planned);
// The least number of ps tasks, up to `most`, with which the prediction is within 5 % of the best.
int ChoosePs(const MeasuredRun& run, int workers, int most, double link = 0);

// The rates in what `millrace status --rates --json` printed. INVALID_ARGUMENT if they are not there.
StatusOr<std::vector<TaskRate>> RatesFromJson(absl::string_view text);

// Predictions for neighbouring numbers, for the page; null if nothing can be said.
nlohmann::json PlanJson(absl::Span<const TaskRate> rates);

}  // namespace millrace::dashboard
