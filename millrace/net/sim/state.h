// State shared by the parts of a simulated network.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/net/sim/sim_event_loop.h"
#include "millrace/net/sim/sim_network.h"

namespace millrace::net {

class SimCall;
class SimServedCall;

// A listener at an address. Callers may hold it longer than the listener lives.
struct SimEndpoint {
  Service* service = nullptr;
  std::string host;
  bool stopped = false;
  std::map<int64_t, SimServedCall*> open;  // unanswered calls, by number
};

struct SimNetwork::State {
  State(uint64_t seed, SimOptions options) : loop(seed), options(std::move(options)) {}

  SimEventLoop loop;
  SimOptions options;
  std::function<SimFate(const SimMessage&)> decide;
  std::vector<std::string> log;
  std::map<std::string, std::shared_ptr<SimEndpoint>> endpoints;  // by address
  std::map<std::string, std::string> hosts;                       // by address, also where nothing listens any more
  std::map<int64_t, SimCall*> calls;                              // not finished at the client
  std::set<SimCall*> streaming;                                   // until destroyed: messages in transit hold the call
  std::set<std::string> dead;
  std::map<std::pair<std::string, std::string>, absl::Time> cuts;  // since when, by sender and receiver
  int64_t next_call = 1;
  int64_t next_served = 1;
  int next_port = 10000;
  bool streams = false;

  void Log(absl::string_view what);
  // "request #7 worker0 -> ps0 /package.Service/Method".
  static std::string Describe(const SimMessage& message);
  bool IsCut(const std::string& from, const std::string& to) const { return cuts.contains({from, to}); }
  void CutOff(const std::string& from, const std::string& to);
  // Whether `a` and `b` have been cut off from each other for `keepalive`, in one direction at least.
  bool IsBroken(const std::string& a, const std::string& b);
  // A random delay for a message of this size.
  absl::Duration Delay(size_t bytes = 0);
  // Sends a message: `deliver` is called each time it arrives, `lost` once if it never does and the connection is found
  // broken. Neither is called if the sender is dead. With `once`, it arrives at most once, and `deliver` logs it.
  // Returns false if it will never arrive.
  bool Send(const SimMessage& message, std::function<void()> deliver, std::function<void()> lost, bool once = false);
};

}  // namespace millrace::net
