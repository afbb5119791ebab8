// Rank 0's end of a meeting: listens, and lets the processes of its job in.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/launch/meeting/meeting_hello.h"
#include "millrace/launch/meeting/meeting_point.h"
#include "millrace/launch/meeting/sealed_channel.h"

namespace millrace::launch {

// A process that was let in.
struct Arrival {
  MeetingHello hello = {};
  Fd socket = {};  // non-blocking; it has been welcomed
  std::shared_ptr<SealedChannel> channel = nullptr;
  std::string from = {};  // for messages
};

// Single-threaded; never blocks, but for the guard. What comes from a stranger is bounded in size and time.
class MeetingPlace {
 public:
  struct Options {
    MeetingPoint point = {};
    int size = 0;           // the processes of the job
    std::string jobs = {};  // MeetingHello::jobs
  };

  // Listens at the first port of the point that is free. ALREADY_EXISTS if none is.
  static StatusOr<MeetingPlace> Open(Options options);

  // "node1:12345"
  const std::string& name() const { return name_; }
  // Appends what to poll for reading.
  void AddTo(std::vector<pollfd>* fds) const;
  // When to call Serve at the latest.
  absl::Time next_timer() const;
  // Accepts and reads. `on_arrival` says why it does not want a process, or nothing; `on_refused` hears of each one
  // that was sent away.
  void Serve(const std::function<std::string(const Arrival&)>& admit, const std::function<void(Arrival)>& on_arrival,
             const std::function<void(const std::string&)>& on_refused);

 private:
  // Somebody who has connected.
  struct Guest {
    Fd socket = {};
    std::string nonce = {}, from = {}, received = {};
    absl::Time deadline = absl::InfiniteFuture();
  };

  explicit MeetingPlace(Options options) : options_(std::move(options)) {}
  void Accept();
  // False if more bytes are needed. Otherwise the guest is done: `hello` is what it said, or why it is a stranger.
  bool Hear(Guest* guest, StatusOr<MeetingHello>* hello);
  Status Check(const MeetingHello& hello) const;

  Options options_;
  std::string name_;
  std::vector<Fd> listening_;
  std::vector<Guest> guests_;
};

}  // namespace millrace::launch
