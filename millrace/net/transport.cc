#include "millrace/net/transport.h"

namespace millrace::net {

RefPtr<OutgoingCall> Channel::Stream(const std::string& method, Bytes request, const CallOptions& options, OnMessage on_message, Done done) {
  done(Unimplemented("calls to ", address_, " do not stream"));
  return {};
}

}  // namespace millrace::net
