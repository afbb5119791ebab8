#include "tests/exchanges/recorder.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace::exchanges {
namespace {

std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const char* name : {"CreateSession", "ExtendSession", "PartialRunSetup", "RunStep", "CloseSession",
                           "ListDevices", "Reset", "MakeCallable", "RunCallable", "ReleaseCallable"})
    methods.push_back(absl::StrCat(kService, name));
  return methods;
}

}  // namespace

Recorder::Recorder(std::shared_ptr<net::Channel> server) : server_(std::move(server)), methods_(AllMethods()) {}

StatusOr<std::vector<Exchange>> Recorder::exchanges() const {
  MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(at_once_);
  return exchanges_;
}

void Recorder::OnCall(int method, std::shared_ptr<net::IncomingCall> call) {
  Exchange exchange;
  exchange.method = methods_[method].substr(sizeof(kService) - 1);
  exchange.request = call->request().Flatten();
  {
    MutexLock lock(&mu_);
    if (!in_flight_.empty() && at_once_.ok())
      at_once_ = FailedPrecondition(exchange.method, " was called while ", in_flight_, " was in flight");
    in_flight_ = exchange.method;
  }
  net::Bytes request = net::Bytes::Of(exchange.request);
  const absl::Duration timeout = call->deadline() - absl::Now();
  server_->Call(methods_[method], std::move(request), {.timeout = timeout},
                [this, exchange = std::move(exchange), call](StatusOr<net::Bytes> answer) mutable {
                  OnAnswer(std::move(exchange), std::move(answer), call.get());
                });
}

void Recorder::OnAnswer(Exchange exchange, StatusOr<net::Bytes> answer, net::IncomingCall* call) {
  exchange.status = answer.status();
  if (answer.ok()) exchange.response = answer->Flatten();
  {
    // Before the client has its answer, and may call again.
    MutexLock lock(&mu_);
    exchanges_.push_back(std::move(exchange));
    in_flight_.clear();
  }
  call->Reply(std::move(answer));
}

}  // namespace millrace::exchanges
