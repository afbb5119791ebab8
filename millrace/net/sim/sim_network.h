// A simulated network on a virtual clock: runs a whole cluster in one thread, with faults determined by a seed.
//
// The same seed, options and calls give the same events in the same order; log() lists them. To reproduce a failure,
// run the same seed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"
#include "millrace/net/connection_table.h"
#include "millrace/net/transport.h"

namespace millrace::net {

struct SimOptions {
  // Each message takes a random time between these two, so messages can overtake each other.
  absl::Duration min_delay = absl::Microseconds(50);
  absl::Duration max_delay = absl::Milliseconds(1);
  // The fraction of messages that are delayed for longer, and the maximum extra delay.
  double delayed = 0;
  absl::Duration max_extra_delay = absl::Seconds(1);
  // The fraction of messages that never arrive. `reset_after` later the connection is found broken and the call gets
  // UNAVAILABLE; if infinite, the caller hears nothing until its timeout.
  double lost = 0;
  absl::Duration reset_after = absl::Seconds(15);
  // The fraction of messages that arrive twice. A request is then served twice; when the first answer arrives, the
  // other service of it is cancelled and its answer ignored.
  double duplicated = 0;
  // The time that a message takes beyond its delay is its size divided by this; 0: none.
  double bytes_per_second = 0;
  // Two hosts that have been cut off from each other for so long find their connections broken, though they send
  // nothing.
  absl::Duration keepalive = absl::Seconds(10);
};

struct SimMessage {
  enum class Kind { kRequest, kAnswer, kCancel, kMessage };  // kMessage: of a streaming call
  Kind kind;
  int64_t call;      // counts from 1
  std::string from;  // hosts
  std::string to;
  std::string method;
  size_t bytes = 0;
};

// What happens to a message. Messages of a streaming call use the call's own connection, which preserves the order and
// never duplicates. A late message delays those after it; after a lost message nothing arrives until the connection is
// found broken.
enum class SimFate { kByChance, kDeliver, kLose, kDuplicate };

// Used by one thread. A host is just a name; a transport belongs to the host that it was made with. An address belongs
// to the host whose transport listens there, whatever it looks like.
class SimNetwork {
 public:
  explicit SimNetwork(uint64_t seed, SimOptions options = {});
  // Must run after its transports are destroyed.
  ~SimNetwork();

  // IncomingCall::peer returns "sim:HOST". Listener::Stop and the destructors of transports and listeners may be called
  // from outside the loop and from events; Stop runs the loop until what it waits for has happened.
  std::unique_ptr<Transport> NewTransport(const std::string& host);

  // The clock of a host. "" stands for no host, here and below: true time.
  Clock* clock(const std::string& host = "");
  // From now on the host's clock and timers run `rate` times as fast as true time. Its clock first jumps by `jump`.
  void SetClock(const std::string& host, double rate, absl::Duration jump = absl::ZeroDuration());
  // Closures of a host wait while it hangs.
  TimerQueue* timers(const std::string& host = "");
  Scheduler* scheduler(const std::string& host = "");

  // Returns false if the condition does not become true within `limit` of virtual time, or if no events are left.
  bool RunUntil(absl::FunctionRef<bool()> condition, absl::Duration limit = absl::Hours(1));
  void RunFor(absl::Duration time);

  // Resets the host's connections: calls in flight from and to it get UNAVAILABLE, its listeners are gone, and nothing
  // that it sends arrives. Its closures still run, so that its objects can be destroyed.
  void Kill(const std::string& host);
  // The host may listen and call again.
  void Restart(const std::string& host);
  // Nothing happens on the host until Resume; messages to it wait.
  void Hang(const std::string& host);
  void Resume(const std::string& host);
  // Messages between the two hosts are lost, in both directions.
  void Cut(const std::string& a, const std::string& b);
  // Messages in one direction are lost.
  void CutOneWay(const std::string& from, const std::string& to);
  void Heal(const std::string& a, const std::string& b);
  // Applies to messages sent from now on.
  void SetOptions(SimOptions options);
  // What the host knows of the connections of calls to it: one is gone if its caller was killed, or has been cut off
  // for `keepalive`. Lives as long as the network.
  std::shared_ptr<ConnectionTable> connections(const std::string& host);
  // Whether channels support streaming calls; false by default.
  void SetStreams(bool streams);
  // `decide` determines the fate of each message when it is sent; it may also call Kill, Hang and Cut. Null leaves it
  // to chance.
  void OnMessage(std::function<SimFate(const SimMessage&)> decide);

  // All events, one line each, starting with the time.
  const std::vector<std::string>& log() const;
  // Adds a line to the log.
  void Log(absl::string_view what);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace millrace::net
