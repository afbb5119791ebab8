// A network that is not there, on a clock that does not tick: a whole cluster in one thread, with faults from a seed.
//
// The same seed, options and calls give the same events in the same order; log() tells them. A failure that a seed found is
// replayed by that seed.
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
#include "millrace/net/transport.h"

namespace millrace::net {

struct SimOptions {
  // A message takes a time between these two, each its own: messages overtake each other.
  absl::Duration min_delay = absl::Microseconds(50);
  absl::Duration max_delay = absl::Milliseconds(1);
  // Of all messages, how many are held up for longer, and for how much longer at most.
  double delayed = 0;
  absl::Duration max_extra_delay = absl::Seconds(1);
  // How many never arrive. The connection that carried one is found broken `reset_after` later: its call gets UNAVAILABLE.
  // InfiniteDuration: silence until the caller's time-out.
  double lost = 0;
  absl::Duration reset_after = absl::Seconds(15);
  // How many arrive twice. A request is then served twice; of two answers the second is ignored, and with the first the server
  // hears that the other is not wanted any more.
  double duplicated = 0;
};

struct SimMessage {
  enum class Kind { kRequest, kAnswer, kCancel, kMessage };  // the last of a call that streams
  Kind kind;
  int64_t call;        // counts from 1
  std::string from;    // hosts
  std::string to;
  std::string method;
};

// What becomes of a message. One of a call that streams travels on the call's own connection, which keeps the order and lets nothing through
// twice: it may be late, and others of its direction with it; behind one that is lost nothing arrives until the connection is found broken.
enum class SimFate { kByChance, kDeliver, kLose, kDuplicate };

// For one thread. A host is a name: what a transport made with it does happens there. Addresses belong to the host whose transport
// listens there, whatever they look like.
class SimNetwork {
 public:
  explicit SimNetwork(uint64_t seed, SimOptions options = {});
  // After its transports.
  ~SimNetwork();

  // Peers, in IncomingCall::peer, are named "sim:HOST". Listener::Stop and the destructors of transports and listeners may be
  // called from outside the loop and from events; Stop runs the loop until what it waits for has happened.
  std::unique_ptr<Transport> NewTransport(const std::string& host);

  Clock* clock();
  // Closures of a host wait while it hangs; "" is no host.
  TimerQueue* timers(const std::string& host = "");
  Scheduler* scheduler(const std::string& host = "");

  // False when the condition does not come true within `limit` of virtual time, or nothing is left that could happen.
  bool RunUntil(absl::FunctionRef<bool()> condition, absl::Duration limit = absl::Hours(1));
  void RunFor(absl::Duration time);

  // The host's connections are reset: calls in flight from and to it get UNAVAILABLE; its listeners are gone, and nothing it sends
  // gets out. Its closures still run, so that what lived there can be destroyed.
  void Kill(const std::string& host);
  // It may listen and call again.
  void Restart(const std::string& host);
  // Nothing happens there until it is resumed; what is sent to it waits.
  void Hang(const std::string& host);
  void Resume(const std::string& host);
  // Messages between the two are lost, both ways.
  void Cut(const std::string& a, const std::string& b);
  void Heal(const std::string& a, const std::string& b);
  // For what is sent from now on.
  void SetOptions(SimOptions options);
  // Whether channels make calls that stream; they do not at first.
  void SetStreams(bool streams);
  // Decides about each message as it is sent; may also Kill, Hang and Cut. Null: chance decides.
  void OnMessage(std::function<SimFate(const SimMessage&)> decide);

  // What happened, one line each, with the time in front.
  const std::vector<std::string>& log() const;
  // Adds a line of the caller's.
  void Log(absl::string_view what);

  struct State;

 private:
  const std::shared_ptr<State> state_;
};

}  // namespace millrace::net
