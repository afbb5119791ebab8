#include "millrace/dashboard/plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "millrace/cluster/cluster_spec.h"

namespace millrace::dashboard {
namespace {

using nlohmann::json;

constexpr double kGood = 0.95;         // of the best prediction: a further ps is not worth it
constexpr double kLongestThink = 1e4;  // seconds
constexpr int kBisections = 60;

// Where workers queue: how long a step uses it, the waiting aside, and how many of them a worker uses at once.
struct Station {
  const char* name;
  double seconds;
};

struct Network {
  double delay = 0;  // what a step takes besides, without queueing
  std::vector<Station> stations;
};

// A resource with several cores is one queue that is as many times faster, and a delay for the rest (Seidmann).
void AddCores(const char* name, double seconds, double cores, Network* network) {
  cores = std::max(1.0, cores);
  network->stations.push_back({name, seconds / cores});
  network->delay += seconds * (cores - 1) / cores;
}

Network NetworkOf(const MeasuredRun& run, const PlannedRun& planned) {
  Network network;
  const double link = planned.link > 0 ? planned.link : run.link;
  const double each_ps = 1.0 / planned.ps;
  const double host = planned.own_hosts ? 0 : run.host_cores;
  if (host > 0) {
    // All of a step's processor time comes from the same cores; some of it runs at once.
    network.stations.push_back({"host_cores", (run.worker_seconds + run.ps_seconds) / host});
    const double alone = run.worker_seconds / run.worker_parallelism + run.ps_seconds;
    network.delay += std::max(0.0, alone - network.stations.back().seconds);
  } else {
    AddCores("ps_cores", run.ps_seconds * each_ps, run.ps_cores, &network);
    network.delay += run.worker_seconds / run.worker_parallelism;
  }
  if (link > 0) {
    // Both directions are used at once: gradients go back while other variables still come.
    const double seconds = std::max(run.bytes_out, run.bytes_in) / link;
    network.stations.push_back({"ps_link", seconds * each_ps});
    // The worker's own link, which is not faster with more ps tasks.
    network.delay += seconds * (1 - each_ps);
  }
  return network;
}

// What makes the model give the measured speed: the thinking time, and how much of those before it a worker waits for
// at a station (1: all of their time; one half if their times are all alike and they come at random; 0: they never
// meet). If that does not suffice, all measured times were too long by a factor.
struct Fit {
  double think = 0, meet = 0.5, scale = 1;
};

// Steps per second of all workers together.
double Throughput(const Network& network, const Fit& fit, int workers, bool synchronous) {
  if (synchronous) {
    double seconds = fit.think + network.delay;
    for (const Station& station : network.stations) seconds += workers * station.seconds;
    return workers / std::max(seconds, 1e-12);
  }
  double most = 1e12;  // no station does more than one after the other
  for (const Station& station : network.stations) most = std::min(most, 1 / std::max(station.seconds, 1e-12));
  std::vector<double> queued(network.stations.size(), 0);
  double throughput = 0;
  for (int n = 1; n <= workers; ++n) {
    double seconds = fit.think + network.delay;
    std::vector<double> residence;
    for (size_t i = 0; i < network.stations.size(); ++i) {
      residence.push_back(network.stations[i].seconds * (1 + fit.meet * queued[i]));
      seconds += residence.back();
    }
    throughput = std::min(most, n / std::max(seconds, 1e-12));
    for (size_t i = 0; i < queued.size(); ++i) queued[i] = throughput * residence[i];
  }
  return throughput;
}

void ScaleNetwork(double by, Network* network) {
  network->delay *= by;
  for (Station& station : network->stations) station.seconds *= by;
}

// The value between `low` and `high` at which `speed`, which falls with it, is `wanted`.
template <typename Speed>
double Solve(double low, double high, double wanted, const Speed& speed) {
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    (speed(middle) > wanted ? low : high) = middle;
  }
  return high;
}

Fit FitTo(const MeasuredRun& run) {
  const Network network = NetworkOf(run, {.ps = run.ps, .workers = run.workers});
  const double wanted = run.steps_per_second;
  const auto speed = [&](const Fit& fit) { return Throughput(network, fit, run.workers, run.synchronous); };
  Fit fit = {.think = run.pause_seconds};
  if (speed(fit) > wanted) {
    // They wait longer for each other, or for something that the rates do not show.
    const double pause = run.pause_seconds;
    fit.meet = 1;
    if (speed(fit) > wanted) {
      fit.think = Solve(pause, kLongestThink, wanted, [&](double think) { return speed({.think = think, .meet = 1}); });
    } else {
      fit.meet = Solve(0.5, 1, wanted, [&](double meet) { return speed({.think = pause, .meet = meet}); });
    }
    return fit;
  }
  fit.think = 0;
  const Fit free = {.meet = 0};
  if (speed(free) > wanted) {
    fit.meet = Solve(0, fit.meet, wanted, [&](double meet) { return speed({.meet = meet}); });
    return fit;
  }
  return {.meet = 0, .scale = speed(free) / wanted};
}

std::string JobNameOf(const TaskRate& rate) {
  const StatusOr<TaskId> id = TaskId::Of(rate.task);
  return id.ok() ? id->job : "";
}

double NumberAt(const json& object, const char* key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  const double value = found != object.end() && found->is_number() ? found->get<double>() : 0;
  return std::isfinite(value) ? value : 0;
}

std::string TextAt(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The part of a ps's traffic that it sends; one half if nothing is known.
double SentShare(const TaskRate& ps) {
  double sent = 0, received = 0;
  for (const PeerRate& peer : ps.peers) {
    sent += static_cast<double>(peer.bytes_sent);
    received += static_cast<double>(peer.bytes_received);
  }
  return sent + received > 0 ? sent / (sent + received) : 0.5;
}

}  // namespace

StatusOr<MeasuredRun> MeasureRun(absl::Span<const TaskRate> rates) {
  MeasuredRun run;
  double ps_busy = 0, worker_busy = 0, out = 0, in = 0, cores = 0;
  std::set<std::string> hosts;
  double host_cores = 0, pauses = 0;
  for (const TaskRate& rate : rates) {
    if (!rate.unknown.empty()) continue;
    const std::string job = JobNameOf(rate);
    if (job == "evaluator") continue;
    const bool is_ps = job == "ps" || (rate.runs && !rate.drives);
    if (!is_ps && !rate.drives) continue;
    hosts.insert(HostOf(rate.address));
    host_cores = std::max({host_cores, rate.host_cores, rate.cores});
    if (is_ps) {
      ++run.ps;
      ps_busy += rate.busy_cores;
      cores += rate.cores;
      out += rate.gigabytes_per_second * 1e9 * SentShare(rate);
      in += rate.gigabytes_per_second * 1e9 * (1 - SentShare(rate));
      if (rate.link_share > 0) run.link = std::max(run.link, rate.gigabytes_per_second * 1e9 / rate.link_share);
    } else {
      ++run.workers;
      worker_busy += rate.busy_cores;
      pauses += std::max(0.0, 1 - rate.in_steps);
      run.steps_per_second += rate.steps_per_second;
    }
  }
  if (run.ps == 0)
    return FailedPrecondition("the run has no ps task whose rates are known; a plan is about ps and workers");
  if (run.workers == 0 || !(run.steps_per_second > 0))
    return FailedPrecondition("no worker of the run made steps while it was measured; measure while it trains");
  run.pause_seconds = pauses / run.steps_per_second;
  run.ps_seconds = ps_busy / run.steps_per_second;
  run.worker_seconds = worker_busy / run.steps_per_second;
  run.bytes_out = out / run.steps_per_second;
  run.bytes_in = in / run.steps_per_second;
  run.ps_cores = cores / run.ps;
  run.worker_parallelism = std::max(1.0, worker_busy / run.workers);
  run.between_hosts = hosts.size() > 1;
  if (!run.between_hosts) run.host_cores = host_cores;
  return run;
}

Prediction Predict(const MeasuredRun& run, const PlannedRun& planned) {
  const Fit fit = FitTo(run);
  Network network = NetworkOf(run, planned);
  ScaleNetwork(fit.scale, &network);
  Prediction prediction;
  const double together = Throughput(network, fit, planned.workers, run.synchronous);
  prediction.steps_per_second = run.synchronous ? together / planned.workers : together;
  prediction.binds = "workers";
  for (const Station& station : network.stations) {
    const double busy = together * station.seconds;
    if (busy <= prediction.busy) continue;
    prediction.busy = std::min(1.0, busy);
    if (busy >= 0.7) prediction.binds = station.name;
  }
  return prediction;
}

int ChoosePs(const MeasuredRun& run, int workers, int most, double link) {
  const auto speed = [&](int ps) {
    return Predict(run, {.ps = ps, .workers = workers, .link = link}).steps_per_second;
  };
  double best = 0;
  for (int ps = 1; ps <= most; ++ps) best = std::max(best, speed(ps));
  int ps = 1;
  while (ps < most && speed(ps) < kGood * best) ++ps;
  return ps;
}

StatusOr<std::vector<TaskRate>> RatesFromJson(absl::string_view text) {
  const json all = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const bool is_status = all.is_object() && all.contains("tasks") && all["tasks"].is_array();
  std::vector<TaskRate> rates;
  for (const json& task : is_status ? all["tasks"] : json::array()) {
    if (!task.is_object() || !task.contains("rates") || !task["rates"].is_object()) continue;
    const json& measured = task["rates"];
    TaskRate rate = {.task = TextAt(task, "task"),
                     .address = TextAt(task, "address"),
                     .seconds = NumberAt(measured, "seconds"),
                     .cores = task.contains("cpu") ? NumberAt(task["cpu"], "cores") : 0,
                     .busy_cores = NumberAt(measured, "busy_cores"),
                     .host_cores = NumberAt(measured, "host_cores"),
                     .host_busy_cores = NumberAt(measured, "host_busy_cores"),
                     .steps_per_second = NumberAt(measured, "steps_per_second"),
                     .parts_per_second = NumberAt(measured, "parts_per_second"),
                     .in_steps = NumberAt(measured, "steps_under_way"),
                     .gigabytes_per_second = NumberAt(measured, "gigabytes_per_second"),
                     .link_share = NumberAt(measured, "share_of_ceiling")};
    rate.drives = rate.steps_per_second > 0;
    rate.runs = rate.parts_per_second > 0;
    const auto peers = task.find("peers");
    if (peers != task.end() && peers->is_array()) {
      for (const json& peer : *peers) {
        rate.peers.push_back(
            {.bytes_sent = static_cast<int64_t>(std::clamp(NumberAt(peer, "bytes_sent"), 0.0, 1e18)),
             .bytes_received = static_cast<int64_t>(std::clamp(NumberAt(peer, "bytes_received"), 0.0, 1e18))});
      }
    }
    rates.push_back(std::move(rate));
  }
  if (rates.empty())
    return InvalidArgument(
        "not the rates of a run; save what `millrace status --target grpc://... --rates --json` prints");
  return rates;
}

json PlanJson(absl::Span<const TaskRate> rates) {
  const StatusOr<MeasuredRun> run = MeasureRun(rates);
  if (!run.ok()) return nullptr;
  json plan = {{"ps", run->ps},
               {"workers", run->workers},
               {"steps_per_second", std::round(run->steps_per_second * 10) / 10},
               {"others", json::array()}};
  std::set<std::pair<int, int>> asked = {{run->ps, 2 * run->workers},
                                         {run->ps + 1, run->workers},
                                         {run->ps + 1, 2 * run->workers},
                                         {2 * run->ps, 2 * run->workers}};
  if (run->workers > 1) asked.insert({run->ps, run->workers / 2});
  if (run->ps > 1) asked.insert({run->ps - 1, run->workers});
  for (const auto& [ps, workers] : asked) {
    const Prediction prediction = Predict(*run, {.ps = ps, .workers = workers});
    plan["others"].push_back({{"ps", ps},
                              {"workers", workers},
                              {"steps_per_second", std::round(prediction.steps_per_second * 10) / 10},
                              {"binds", prediction.binds},
                              {"busy", std::round(prediction.busy * 100) / 100}});
  }
  return plan;
}

}  // namespace millrace::dashboard
