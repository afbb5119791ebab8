// One unary call of a client.
#pragma once

#include <grpc/grpc.h>

#include <atomic>
#include <memory>
#include <string>

#include "millrace/net/grpc/byte_buffer.h"
#include "millrace/net/grpc/channel.h"

namespace millrace::net {

// Holds a reference to itself from Start until `done` has run.
class GrpcOutgoingCall final : public OutgoingCall {
 public:
  GrpcOutgoingCall(std::shared_ptr<GrpcChannel> channel, std::shared_ptr<GrpcConnection> connection,
                   CallsInFlight* in_flight, const std::string& method, const CallOptions& options, Channel::Done done);

  // Nobody but the channel itself waits for it. Call it before Start.
  void set_is_probe() { is_probe_ = true; }
  bool is_probe() const { return is_probe_; }
  void Start(const Bytes& request, CompletionQueue* queue);
  void Cancel() override;
  // Its connection has gone silent: ends the call with UNAVAILABLE.
  void Abandon();

 private:
  ~GrpcOutgoingCall() override;
  void OnFinished(bool ok);
  // `answered`: the other side gave the result.
  StatusOr<Bytes> Result(bool* answered);
  // The status for an error that did not come from the other side's handler.
  Status LocalError(absl::string_view details) const;

  const std::shared_ptr<GrpcChannel> channel_;
  const std::shared_ptr<GrpcConnection> connection_;
  CallsInFlight* const in_flight_;
  const std::string method_;
  const CallOptions options_;
  Channel::Done done_;
  bool is_probe_ = false;
  std::atomic<bool> cancelled_{false};  // by this side
  std::atomic<bool> abandoned_{false};
  MemberEvent<GrpcOutgoingCall, &GrpcOutgoingCall::OnFinished> finished_{this};

  grpc_call* call_ = nullptr;
  ByteBuffer request_;
  // Filled in by gRPC.
  grpc_byte_buffer* answer_ = nullptr;
  grpc_metadata_array initial_metadata_;
  grpc_metadata_array trailing_metadata_;
  grpc_status_code code_ = GRPC_STATUS_UNKNOWN;
  grpc_slice details_;
  const char* error_ = nullptr;
};

}  // namespace millrace::net
