// The way to one other rank of a group.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"

namespace millrace::collective {

// Sends over a stream that this rank has opened, over one that the other has opened, or by a call for each message;
// messages wait until one of these is there. Messages may overtake each other if they are sent by several threads or by
// calls.
//
// Thread-safe.
class PeerLink {
 public:
  // Sends a message by a call of its own.
  using CallSender = std::function<void(net::Bytes message)>;

  void Send(net::Bytes message);
  // Opens the link. Only the first of these has an effect.
  void OpenStream(RefPtr<net::OutgoingStream> stream);
  // Returns false, and does not keep the call, if the link is already open or closed.
  [[nodiscard]] bool OpenServed(std::shared_ptr<net::IncomingCall> call);
  void OpenCalls(CallSender send);
  bool open() const;

  // Sends `last` after everything before it if the link is open, and ends it: messages are dropped from now on. The
  // rank that opened a stream leaves its end to the other, so that `last` is not overtaken.
  void Close(net::Bytes last);

  // This rank wants the link. Returns true once.
  [[nodiscard]] bool Want();
  bool wanted() const;

 private:
  void Flush();
  void SendNow(net::Bytes message);
  void End();

  mutable Mutex mu_;
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  bool opened_ ABSL_GUARDED_BY(mu_) = false;   // one of the three below is set
  bool flushed_ ABSL_GUARDED_BY(mu_) = false;  // and nothing is queued
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  RefPtr<net::OutgoingStream> stream_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<net::IncomingCall> served_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<CallSender> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<net::Bytes> queued_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::collective
