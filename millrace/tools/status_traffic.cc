#include "millrace/tools/status_traffic.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/str_format.h"
#include "millrace/base/file.h"
#include "millrace/cluster/watch/hang_report.h"
#include "millrace/tools/bench_net/touched_memory.h"
#include "millrace/tools/text_table.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

std::string CoresText(double cores) { return absl::StrFormat("%g core%s", cores, cores == 1 ? "" : "s"); }

std::string RateText(const PeerRate& peer) {
  return absl::StrFormat(
      "%.*f GB/s, %.0f calls/s%s", peer.gigabytes_per_second < 0.1 ? 4 : 2, peer.gigabytes_per_second,
      peer.calls_per_second,
      peer.share > 0 ? absl::StrFormat(", %.*f %% of the ceiling", peer.share < 0.095 ? 1 : 0, 100 * peer.share) : "");
}

}  // namespace

std::string BytesText(int64_t bytes) {
  double number = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* larger : {"KB", "MB", "GB", "TB"}) {
    if (number < 999.5) break;
    number /= 1000;
    unit = larger;
  }
  return absl::StrFormat("%.*f %s", unit[0] == 'B' || number >= 99.95 ? 0 : 1, number, unit);
}

void AppendTraffic(const TaskStatus& status, const TaskRate* rate, std::string* text) {
  if (!status.has_usage()) return;
  const bool has_rates = rate != nullptr && rate->unknown.empty();
  TextTable cpu, peers, refused;
  const std::string so_far =
      absl::StrFormat("%.1f s user, %.1f s system", status.usage().user_seconds(), status.usage().system_seconds());
  cpu.Add({has_rates ? absl::StrFormat("%.2f of %s busy", rate->busy_cores, CoresText(status.usage().cores()))
                     : CoresText(status.usage().cores()),
           so_far});
  if (has_rates && rate->drives)
    cpu.Add({absl::StrFormat("%.1f steps/s", rate->steps_per_second),
             absl::StrFormat("in steps %.0f %% of the time", 100 * rate->in_steps)});
  if (has_rates && !rate->drives && rate->runs) cpu.Add({absl::StrFormat("%.1f parts/s", rate->parts_per_second), ""});
  std::vector<PeerRate> all;
  if (rate != nullptr) {
    all = rate->peers;
  } else {
    for (const TaskStatus::Peer& peer : status.peers()) {
      all.push_back({.peer = peer.peer(),
                     .outgoing = peer.outgoing(),
                     .lane = peer.lane(),
                     .why_not_better = peer.why_not_better(),
                     .bytes_sent = peer.bytes_sent(),
                     .bytes_received = peer.bytes_received(),
                     .calls = peer.calls()});
    }
  }
  for (const PeerRate& peer : all) {
    std::vector<std::string> row = {absl::StrCat(peer.outgoing ? "to " : "from ", ShortTaskName(peer.peer)), peer.lane,
                                    absl::StrCat(BytesText(peer.bytes_sent), " sent"),
                                    absl::StrCat(BytesText(peer.bytes_received), " received"),
                                    absl::StrCat(peer.calls, " calls")};
    if (has_rates) row.push_back(RateText(peer));
    if (!peer.why_not_better.empty()) row.push_back(absl::StrCat("(", peer.why_not_better, ")"));
    peers.Add(std::move(row));
  }
  if (status.refused_connections() > 0)
    refused.Add({absl::StrCat(status.refused_connections(), " connections that did not belong here")});
  if (status.excess_connections() > 0) {
    refused.Add({absl::StrCat(status.excess_connections(), " connections beyond the limits (",
                              status.incoming_connections(), " are open, ", status.descriptor_limit(),
                              " file descriptors at most), the last ", status.last_excess())});
  }
  cpu.AppendTo("cpu", text);
  peers.AppendTo("peers", text);
  refused.AppendTo("refused", text);
}

void AddTrafficJson(const TaskStatus& status, const TaskRate* rate, json* task) {
  if (!status.has_usage()) return;
  const bool has_rates = rate != nullptr && rate->unknown.empty();
  (*task)["cpu"] = {{"user_seconds", status.usage().user_seconds()},
                    {"system_seconds", status.usage().system_seconds()},
                    {"cores", status.usage().cores()}};
  (*task)["refused_connections"] = status.refused_connections();
  (*task)["incoming_connections"] = status.incoming_connections();
  (*task)["excess_connections"] = status.excess_connections();
  (*task)["descriptor_limit"] = status.descriptor_limit();
  (*task)["peers"] = json::array();
  for (const TaskStatus::Peer& peer : status.peers()) {
    (*task)["peers"].push_back({{"peer", peer.peer()},
                                {"outgoing", peer.outgoing()},
                                {"lane", peer.lane()},
                                {"why_not_better", peer.why_not_better()},
                                {"bytes_sent", peer.bytes_sent()},
                                {"bytes_received", peer.bytes_received()},
                                {"calls", peer.calls()}});
  }
  if (!has_rates) return;
  json peers = json::array();
  for (const PeerRate& peer : rate->peers) {
    peers.push_back({{"peer", peer.peer},
                     {"outgoing", peer.outgoing},
                     {"lane", peer.lane},
                     {"gigabytes_per_second", peer.gigabytes_per_second},
                     {"calls_per_second", peer.calls_per_second},
                     {"share_of_ceiling", peer.share > 0 ? json(peer.share) : json(nullptr)}});
  }
  (*task)["rates"] = {{"seconds", rate->seconds},
                      {"busy_cores", rate->busy_cores},
                      {"host_cores", rate->host_cores},
                      {"host_busy_cores", rate->host_busy_cores},
                      {"steps_per_second", rate->steps_per_second},
                      {"parts_per_second", rate->parts_per_second},
                      {"steps_under_way", rate->in_steps},
                      {"gigabytes_per_second", rate->gigabytes_per_second},
                      {"share_of_ceiling", rate->link_share > 0 ? json(rate->link_share) : json(nullptr)},
                      {"peers", std::move(peers)}};
}

StatusOr<Ceilings> ReadCeilings(const std::vector<std::string>& files) {
  Ceilings ceilings;
  for (const std::string& file : files) {
    MR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(FileSystem::Posix(), file));
    const json figures = json::parse(text, nullptr, /*allow_exceptions=*/false);
    const bool is_object = figures.is_object() && figures.contains("where") && figures["where"].is_string() &&
                           figures.contains("ways") && figures["ways"].is_array();
    double fastest = 0;
    for (const json& way : is_object ? figures["ways"] : json::array()) {
      if (!way.is_object() || way.value("kind", json()) != "ceiling") continue;
      // The figure for its largest message, which does not fit into a cache.
      double last = 0;
      for (const json& speed : way.value("gigabytes_per_second", json::array())) {
        if (speed.is_number()) last = speed.get<double>();
      }
      fastest = std::max(fastest, last);
    }
    if (!(fastest > 0)) return InvalidArgument("'", file, "' has no figures of `millrace bench-net --json`");
    double& ceiling = figures["where"] == "this host" ? ceilings.same_host : ceilings.between_hosts;
    ceiling = std::max(ceiling, fastest);
  }
  return ceilings;
}

double MeasureCopies() {
  constexpr size_t kSize = size_t{64} << 20;
  const StatusOr<bench_net::TouchedMemory> from = bench_net::TouchedMemory::Private(kSize),
                                           to = bench_net::TouchedMemory::Private(kSize);
  if (!from.ok() || !to.ok()) return 0;
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to->data(), from->data(), kSize);
    asm volatile("" : : "r"(to->data()) : "memory");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (seconds > 0) best = std::max(best, static_cast<double>(kSize) / seconds / 1e9);
  }
  return best;
}

}  // namespace millrace
