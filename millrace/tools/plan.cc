// millrace plan: what other numbers of ps tasks and workers would give, from the rates of one run.
#include "millrace/dashboard/plan.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/base/file.h"
#include "millrace/tools/command.h"
#include "millrace/tools/text_table.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int kMostTasks = 10000;

struct PlanFlags {
  std::string file;
  std::string ps, workers, link, measured_link;
  bool synchronous = false, own_hosts = false, json = false;
};

// "1,2,4-6" as numbers.
StatusOr<std::vector<int>> ParseCounts(const std::string& flag, const std::string& text) {
  std::vector<int> counts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first, last;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last) || first < 1 || last < first ||
        last > kMostTasks || counts.size() + (last - first) > 200) {
      return InvalidArgument(flag, " is '", text, "'; give numbers of tasks, as in 1,2,4-8");
    }
    for (int i = first; i <= last; ++i) counts.push_back(i);
  }
  return counts;
}

// Bytes per second of "10Gbit", "1.25GB".
StatusOr<double> ParseLink(const std::string& flag, const std::string& text) {
  double factor = 0;
  absl::string_view number = text;
  for (const auto& [unit, bytes] :
       {std::pair("Gbit", 1e9 / 8), std::pair("Mbit", 1e6 / 8), std::pair("GB", 1e9), std::pair("MB", 1e6)}) {
    if (factor == 0 && absl::ConsumeSuffix(&number, unit)) factor = bytes;
  }
  double value;
  if (factor == 0 || !absl::SimpleAtod(number, &value) || !(value > 0) || value > 1e6)
    return InvalidArgument(flag, " is '", text, "'; give the bandwidth of a host, as in 10Gbit or 1.25GB (per second)");
  return value * factor;
}

StatusOr<std::string> ReadRates(const std::string& file) {
  if (file != "-") return ReadWholeFile(FileSystem::Posix(), file);
  return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
}

const char* BindsText(const std::string& binds) {
  if (binds == "ps_link") return "the links of the ps tasks";
  if (binds == "ps_cores") return "the cores of the ps tasks";
  if (binds == "host_cores") return "the cores of the host";
  return "the workers";
}

StatusOr<std::string> Plan(const PlanFlags& flags) {
  MR_ASSIGN_OR_RETURN(const std::string text, ReadRates(flags.file));
  MR_ASSIGN_OR_RETURN(const std::vector<TaskRate> rates, dashboard::RatesFromJson(text));
  MR_ASSIGN_OR_RETURN(dashboard::MeasuredRun run, dashboard::MeasureRun(rates));
  run.synchronous = flags.synchronous;
  std::vector<int> ps = {run.ps, run.ps + 1, 2 * run.ps}, workers = {run.workers, 2 * run.workers};
  if (!flags.ps.empty()) {
    MR_ASSIGN_OR_RETURN(ps, ParseCounts("--ps", flags.ps));
  }
  if (!flags.workers.empty()) {
    MR_ASSIGN_OR_RETURN(workers, ParseCounts("--workers", flags.workers));
  }
  double link = 0;
  if (!flags.measured_link.empty()) {
    MR_ASSIGN_OR_RETURN(run.link, ParseLink("--measured_link", flags.measured_link));
  }
  if (!flags.link.empty()) {
    MR_ASSIGN_OR_RETURN(link, ParseLink("--link", flags.link));
    if (run.between_hosts && run.link == 0) {
      return InvalidArgument(
          "the run was measured between hosts, and the bandwidth of their links is not in its rates: give it as "
          "--measured_link, or measure with `millrace status --ceilings`");
    }
  }
  ps.erase(std::unique(ps.begin(), ps.end()), ps.end());
  json predictions = json::array();
  TextTable table;
  table.Add({"PS", "WORKERS", "STEPS/S", "BINDS"});
  for (const int p : ps) {
    for (const int w : workers) {
      const dashboard::Prediction prediction =
          Predict(run, {.ps = p, .workers = w, .link = link, .own_hosts = flags.own_hosts || !flags.link.empty()});
      table.Add({absl::StrCat(p), absl::StrCat(w), absl::StrFormat("%.1f", prediction.steps_per_second),
                 absl::StrFormat("%s (%.0f %% busy)", BindsText(prediction.binds), 100 * prediction.busy)});
      predictions.push_back({{"ps", p},
                             {"workers", w},
                             {"steps_per_second", prediction.steps_per_second},
                             {"binds", prediction.binds},
                             {"busy", prediction.busy}});
    }
  }
  const double measured = run.synchronous ? run.steps_per_second / run.workers : run.steps_per_second;
  if (flags.json) {
    return json({{"measured", {{"ps", run.ps}, {"workers", run.workers}, {"steps_per_second", measured}}},
                 {"predicted", predictions}})
               .dump(2) +
           "\n";
  }
  std::string out =
      absl::StrFormat("measured with %d ps and %d workers: %.1f steps/s; predicted:\n", run.ps, run.workers, measured);
  table.AppendTo("", &out);
  return out;
}

}  // namespace

std::function<int()> AddPlan(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* plan = app.add_subcommand(
      "plan", "Predicts the steps/s of a job with other numbers of ps tasks and workers, from the rates of one run");
  auto flags = std::make_shared<PlanFlags>();
  plan->add_option("rates", flags->file,
                   "What `millrace status --target grpc://... --rates --json` printed; - is stdin")
      ->required();
  plan->add_option("--ps", flags->ps, "Numbers of ps tasks to predict for, as in 1,2,4-8");
  plan->add_option("--workers", flags->workers, "Numbers of workers, likewise");
  plan->add_option("--link", flags->link,
                   "The bandwidth of each host, as in 10Gbit or 1.25GB: predicts for tasks on hosts of their own");
  plan->add_option("--measured_link", flags->measured_link,
                   "The bandwidth of the hosts of the measured run, if they were several and their links were in use");
  plan->add_flag("--own_hosts", flags->own_hosts, "Predicts for tasks on hosts of their own, with the measured links");
  plan->add_flag("--synchronous", flags->synchronous, "The workers wait for each other in every step");
  plan->add_flag("--json", flags->json, "Prints one JSON object");
  plan->footer(
      "Examples:\n"
      "  millrace status --target grpc://localhost:2222 --rates 5 --json > run.json\n"
      "  millrace plan run.json --ps 1-4 --workers 2,4,8\n"
      "  millrace plan run.json --workers 8 --link 10Gbit");
  *command = plan;
  return [flags] {
    const StatusOr<std::string> text = Plan(*flags);
    if (!text.ok()) return Fail("plan", text.status(), 2);
    std::cout << *text << std::flush;
    return 0;
  };
}

}  // namespace millrace
