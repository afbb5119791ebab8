#include "millrace/collective/peer_link.h"

#include <utility>

namespace millrace::collective {

void PeerLink::Send(net::Bytes message) {
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    if (!flushed_) return queued_.push_back(std::move(message));
  }
  SendNow(std::move(message));
}

void PeerLink::SendNow(net::Bytes message) {
  RefPtr<net::OutgoingStream> stream;
  std::shared_ptr<net::IncomingCall> served;
  std::shared_ptr<CallSender> calls;
  {
    MutexLock lock(&mu_);
    stream = stream_;
    served = served_;
    calls = calls_;
  }
  if (stream) return stream->Send(std::move(message));
  if (served != nullptr) return served->stream()->Send(std::move(message));
  if (calls != nullptr) (*calls)(std::move(message));
}

void PeerLink::Flush() {
  for (;;) {
    std::vector<net::Bytes> queued;
    {
      MutexLock lock(&mu_);
      if (queued_.empty()) {
        flushed_ = true;
        if (!closed_) return;
      }
      queued.swap(queued_);
    }
    if (queued.empty()) return End();
    for (net::Bytes& message : queued) SendNow(std::move(message));
  }
}

void PeerLink::OpenStream(RefPtr<net::OutgoingStream> stream) {
  {
    MutexLock lock(&mu_);
    if (opened_ || closed_ || !stream) return;
    opened_ = true;
    stream_ = std::move(stream);
  }
  Flush();
}

bool PeerLink::OpenServed(std::shared_ptr<net::IncomingCall> call) {
  {
    MutexLock lock(&mu_);
    if (opened_ || closed_) return false;
    opened_ = true;
    served_ = std::move(call);
  }
  Flush();
  return true;
}

void PeerLink::OpenCalls(CallSender send) {
  {
    MutexLock lock(&mu_);
    if (opened_ || closed_) return;
    opened_ = true;
    calls_ = std::make_shared<CallSender>(std::move(send));
  }
  Flush();
}

bool PeerLink::open() const {
  MutexLock lock(&mu_);
  return opened_;
}

bool PeerLink::Want() {
  MutexLock lock(&mu_);
  return !std::exchange(wanted_, true);
}

bool PeerLink::wanted() const {
  MutexLock lock(&mu_);
  return wanted_;
}

void PeerLink::Close(net::Bytes last) {
  std::vector<net::Bytes> dropped;
  bool opened;
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    closed_ = true;
    opened = opened_;
    if (opened && !flushed_) {
      // Another thread is sending what was queued: it sends this too, and then ends the link.
      if (!last.empty()) queued_.push_back(std::move(last));
      return;
    }
    dropped.swap(queued_);
  }
  if (opened && !last.empty()) SendNow(std::move(last));
  End();
}

void PeerLink::End() {
  RefPtr<net::OutgoingStream> stream;
  std::shared_ptr<net::IncomingCall> served;
  std::shared_ptr<CallSender> calls;
  {
    MutexLock lock(&mu_);
    stream = std::move(stream_);
    served = std::move(served_);
    calls = std::move(calls_);
  }
  if (served != nullptr) served->Reply(net::Bytes());
}

}  // namespace millrace::collective
