// Stands between a client and a server, passes calls on unchanged, and keeps them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"
#include "tests/exchanges/exchange.h"

namespace millrace::exchanges {

// Thread-safe. A message is never parsed, so that what is kept is what went over the wire.
class Recorder : public net::Service {
 public:
  // Passes calls on to `server`.
  explicit Recorder(std::shared_ptr<net::Channel> server);

  // The calls so far, in the order in which they were made. FAILED_PRECONDITION if two were in flight at once: nobody
  // could make them again in the same order.
  StatusOr<std::vector<Exchange>> exchanges() const;

  const std::vector<std::string>& methods() const override { return methods_; }
  void OnCall(int method, std::shared_ptr<net::IncomingCall> call) override;

 private:
  void OnAnswer(Exchange exchange, StatusOr<net::Bytes> answer, net::IncomingCall* call);

  const std::shared_ptr<net::Channel> server_;
  const std::vector<std::string> methods_;
  mutable Mutex mu_;
  std::vector<Exchange> exchanges_ ABSL_GUARDED_BY(mu_);
  std::string in_flight_ ABSL_GUARDED_BY(mu_);  // its method; empty: none
  Status at_once_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::exchanges
