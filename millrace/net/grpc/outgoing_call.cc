#include "millrace/net/grpc/outgoing_call.h"

#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/net/grpc/grpc_text.h"
#include "millrace/net/grpc/status.h"

namespace millrace::net {
namespace {

gpr_timespec DeadlineAfter(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const int64_t nanos = absl::ToInt64Nanoseconds(std::max(timeout, absl::ZeroDuration()));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanos, GPR_TIMESPAN));
}

// Whether the call ended without a status from anybody, for which gRPC has codes that mean faults of a handler: the
// connection made no sense or broke, or something in between reset the stream.
bool EndedWithoutStatus(grpc_status_code code, absl::string_view details) {
  return (code == GRPC_STATUS_UNKNOWN && details == "Stream removed") ||
         (code == GRPC_STATUS_INTERNAL && absl::StartsWith(details, "Received RST_STREAM"));
}

// True when the other side's handler gave this status. gRPC says "received from peer" also of what its own transport
// noticed and of a deadline that passed over there first.
bool IsFromHandler(grpc_status_code code, absl::string_view details, absl::string_view error) {
  if (!absl::StrContains(error, "Error received from peer")) return false;
  if (code == GRPC_STATUS_DEADLINE_EXCEEDED) return details != "Deadline Exceeded";
  if (code != GRPC_STATUS_UNAVAILABLE) return true;
  for (const char* noticed : {"Socket closed", "Connection reset", "Broken pipe", "GOAWAY received", "Stream removed",
                              "Transport closed", "Received RST_STREAM", "recvmsg:", "sendmsg:", "keepalive watchdog",
                              "Endpoint read failed", "endpoint shutdown"}) {
    if (absl::StartsWith(details, noticed)) return false;
  }
  return true;
}

}  // namespace

GrpcOutgoingCall::GrpcOutgoingCall(std::shared_ptr<GrpcChannel> channel, std::shared_ptr<GrpcConnection> connection,
                                   CallsInFlight* in_flight, const std::string& method, const CallOptions& options,
                                   Channel::Done done)
    : channel_(std::move(channel)),
      connection_(std::move(connection)),
      in_flight_(in_flight),
      method_(method),
      options_(options),
      done_(std::move(done)),
      details_(grpc_empty_slice()) {
  grpc_metadata_array_init(&initial_metadata_);
  grpc_metadata_array_init(&trailing_metadata_);
}

GrpcOutgoingCall::~GrpcOutgoingCall() {
  grpc_metadata_array_destroy(&initial_metadata_);
  grpc_metadata_array_destroy(&trailing_metadata_);
  grpc_slice_unref(details_);
  gpr_free(const_cast<char*>(error_));
  if (answer_ != nullptr) grpc_byte_buffer_destroy(answer_);
  if (call_ != nullptr) grpc_call_unref(call_);
}

void GrpcOutgoingCall::Start(const Bytes& request, CompletionQueue* queue) {
  if (request.size() > kMaxGrpcMessage) {
    done_(ResourceExhausted(channel_->address(), ": a request of ", request.size(), " bytes to ", method_,
                            " is more than the 4 GiB that gRPC carries"));
    return;
  }
  const grpc_slice method = grpc_slice_from_copied_buffer(method_.data(), method_.size());
  call_ = grpc_channel_create_call(connection_->get(), nullptr, GRPC_PROPAGATE_DEFAULTS, queue->get(), method, nullptr,
                                   DeadlineAfter(options_.timeout), nullptr);
  grpc_slice_unref(method);
  if (!in_flight_->Add(this)) {
    done_(Cancelled(channel_->address(), ": ", method_, " was called while the transport was closed"));
    return;
  }
  request_ = ToByteBuffer(request);

  grpc_op ops[6];
  std::memset(ops, 0, sizeof(ops));
  ops[0].op = GRPC_OP_SEND_INITIAL_METADATA;
  ops[1].op = GRPC_OP_SEND_MESSAGE;
  ops[1].data.send_message.send_message = request_.get();
  ops[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
  ops[3].op = GRPC_OP_RECV_INITIAL_METADATA;
  ops[3].data.recv_initial_metadata.recv_initial_metadata = &initial_metadata_;
  ops[4].op = GRPC_OP_RECV_MESSAGE;
  ops[4].data.recv_message.recv_message = &answer_;
  ops[5].op = GRPC_OP_RECV_STATUS_ON_CLIENT;
  ops[5].data.recv_status_on_client.trailing_metadata = &trailing_metadata_;
  ops[5].data.recv_status_on_client.status = &code_;
  ops[5].data.recv_status_on_client.status_details = &details_;
  ops[5].data.recv_status_on_client.error_string = &error_;
  Ref();
  connection_->Add(this);
  const grpc_call_error error = grpc_call_start_batch(call_, ops, std::size(ops), finished_.Tag(), nullptr);
  MR_CHECK(error == GRPC_CALL_OK);
}

void GrpcOutgoingCall::Cancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  if (call_ != nullptr) grpc_call_cancel(call_, nullptr);
}

void GrpcOutgoingCall::Abandon() {
  abandoned_.store(true);
  Cancel();
}

void GrpcOutgoingCall::OnFinished(bool ok) {
  request_.reset();
  bool answered = false;
  StatusOr<Bytes> result = Result(&answered);
  const bool given_up = code_ == GRPC_STATUS_DEADLINE_EXCEEDED || code_ == GRPC_STATUS_CANCELLED;
  connection_->Remove(this, answered   ? GrpcConnection::CallEnd::kAnswered
                            : given_up ? GrpcConnection::CallEnd::kGivenUp
                                       : GrpcConnection::CallEnd::kFailed);
  // Taken out, so that what it holds goes before the call is over for the transport.
  Channel::Done done = std::move(done_);
  done(std::move(result));
  done = nullptr;
  in_flight_->Remove(this);
  Unref();
}

StatusOr<Bytes> GrpcOutgoingCall::Result(bool* answered) {
  if (code_ == GRPC_STATUS_OK) {
    *answered = true;
    if (answer_ != nullptr) return FromByteBuffer(ByteBuffer(std::exchange(answer_, nullptr)));
    return Internal(channel_->address(), ": the answer to ", method_, " holds no message");
  }
  const std::string details = CopyText(details_);
  if (EndedWithoutStatus(code_, details)) code_ = GRPC_STATUS_UNAVAILABLE;
  // A server that stops drops the calls that no handler has seen yet: its end, to whoever called, not a cancellation.
  if (code_ == GRPC_STATUS_CANCELLED && details == "CANCELLED" && !cancelled_.load(std::memory_order_relaxed)) {
    channel_->OnUnavailable(connection_.get());
    return Unavailable(channel_->address(), ": the server ended before it took the call of ", method_);
  }
  const bool cancelled = code_ == GRPC_STATUS_CANCELLED && cancelled_.load(std::memory_order_relaxed);
  if (cancelled && abandoned_.load()) {
    return Unavailable(channel_->address(), ": the connection went silent while ", method_,
                       " waited for an answer; a new connection works and replaces it");
  }
  const bool from_handler = IsFromHandler(code_, details, CopyText(error_));
  *answered = from_handler && !cancelled;
  if (from_handler) return FromGrpc(code_, details);
  if (code_ == GRPC_STATUS_UNAVAILABLE) channel_->OnUnavailable(connection_.get());
  const Status error = LocalError(details);
  return Status(error.code(), WithPlainLookup(WithPlainAddresses(error.message())));
}

Status GrpcOutgoingCall::LocalError(absl::string_view details) const {
  const std::string& address = channel_->address();
  switch (code_) {
    case GRPC_STATUS_DEADLINE_EXCEEDED:
      return DeadlineExceeded(address, ": no answer to ", method_, " within ", absl::FormatDuration(options_.timeout));
    case GRPC_STATUS_CANCELLED:
      return Cancelled(address, ": the call of ", method_, " was cancelled");
    case GRPC_STATUS_UNAVAILABLE:
      break;
    default:
      return FromGrpc(code_, absl::StrCat(address, ": ", details));
  }
  const auto says = [&](std::initializer_list<absl::string_view> words) {
    return std::any_of(words.begin(), words.end(),
                       [&](absl::string_view word) { return absl::StrContains(details, word); });
  };
  absl::string_view hint;
  if (channel_->secure() && says({"handshake", "SSL", "security", "certificate"})) {
    hint =
        " (the TLS handshake failed: the server must have TLS on, and each side a certificate that the other's "
        "authority signed, the "
        "server's for the host of its address)";
  } else if (says({"closed", "reset", "Broken pipe"})) {
    hint = channel_->secure() ? " (the server ended, or it refused this task's TLS certificate)"
                              : " (the server ended, or it requires TLS)";
  }
  return Unavailable(address, ": ", details, hint);
}

}  // namespace millrace::net
