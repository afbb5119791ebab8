#include "millrace/net/lane/acceptor.h"

#include <cerrno>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/net/lane/endpoint.h"
#include "millrace/net/lane/server_link.h"

namespace millrace::net {
namespace {

constexpr absl::Duration kRetry = absl::Milliseconds(200);

}  // namespace

LaneAcceptor::LaneAcceptor(RefPtr<LaneEndpoint> endpoint, EventLoop* loop, Fd socket, const LaneMedium* medium)
    : endpoint_(std::move(endpoint)), loop_(loop), medium_(medium), socket_(std::move(socket)) {}

LaneAcceptor::~LaneAcceptor() = default;

Status LaneAcceptor::Start() {
  MutexLock lock(&mu_);
  id_ = loop_->Add(ShareRef(this));
  return loop_->ArmRead(id_, socket_.get());
}

void LaneAcceptor::Stop() {
  Fd closed;
  MutexLock lock(&mu_);
  loop_->Remove(id_);
  closed = std::move(socket_);
}

void LaneAcceptor::TryAgainLater() {
  const LaneOptions& options = endpoint_->core()->options;
  endpoint_->core()->deadlines.Add(options.clock->Now() + kRetry, [self = ShareRef(this)] {
    self->loop_->Post([self](EventThread* here) { self->OnReadable(here); });
  });
}

void LaneAcceptor::OnReadable(EventThread* /*here*/) {
  for (;;) {
    Fd accepted;
    {
      MutexLock lock(&mu_);
      if (!socket_.ok()) return;
      accepted = endpoint_->core()->admission.Accept(socket_.get());
      if (!accepted.ok()) {
        if (Admission::OutOfResources(errno)) return TryAgainLater();
        if (Status armed = loop_->ArmRead(id_, socket_.get()); !armed.ok())
          MR_LOG(Warning, "a step lane's listener ended: ", armed.message());
        return;
      }
    }
    ServerLink::Start(endpoint_, std::move(accepted), medium_);
  }
}

}  // namespace millrace::net
