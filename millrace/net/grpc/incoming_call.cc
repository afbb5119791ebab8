#include "millrace/net/grpc/incoming_call.h"

#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include <cstring>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/net/grpc/grpc_text.h"
#include "millrace/net/grpc/status.h"

namespace millrace::net {

GrpcIncomingCall::GrpcIncomingCall(GrpcListener* listener, int method)
    : listener_(listener), queue_(listener->queue()), method_(method) {
  grpc_metadata_array_init(&metadata_);
  grpc_call_details_init(&details_);
}

GrpcIncomingCall::~GrpcIncomingCall() {
  grpc_metadata_array_destroy(&metadata_);
  grpc_call_details_destroy(&details_);
  if (call_ != nullptr) grpc_call_unref(call_);
}

void GrpcIncomingCall::Request(grpc_server* server, void* method) {
  grpc_completion_queue* const queue = queue_->get();
  const grpc_call_error error =
      method == nullptr ? grpc_server_request_call(server, &call_, &details_, &metadata_, queue, queue, arrival_.Tag())
                        : grpc_server_request_registered_call(server, method, &call_, &deadline_, &metadata_,
                                                              &received_, queue, queue, arrival_.Tag());
  MR_CHECK(error == GRPC_CALL_OK);
}

void GrpcIncomingCall::OnArrival(bool ok) {
  if (ok) request_ = FromByteBuffer(ByteBuffer(std::exchange(received_, nullptr)));
  listener_->OnArrival(this, ok);
}

void GrpcIncomingCall::WatchClose() {
  grpc_op op;
  std::memset(&op, 0, sizeof(op));
  op.op = GRPC_OP_RECV_CLOSE_ON_SERVER;
  op.data.recv_close_on_server.cancelled = &cancelled_;
  Ref();
  MR_CHECK(grpc_call_start_batch(call_, &op, 1, closed_.Tag(), nullptr) == GRPC_CALL_OK);
}

void GrpcIncomingCall::Serve(Service* service) {
  WatchClose();
  // The service's handle: a call that is dropped without an answer would keep its caller waiting.
  Ref();
  std::shared_ptr<IncomingCall> handle(this, [](GrpcIncomingCall* call) {
    if (!call->answered_) call->Reply(Internal("the server dropped the call without an answer"));
    call->Unref();
  });
  service->OnCall(method_, std::move(handle));
  EndPart();
}

void GrpcIncomingCall::Refuse(Status why) {
  WatchClose();
  Reply(std::move(why));
  EndPart();
}

std::string GrpcIncomingCall::MethodName() const { return CopyText(details_.method); }

bool GrpcIncomingCall::from_client() const {
  CertificateRoles* const roles = listener_->roles();
  if (roles == nullptr) return false;
  const std::unique_ptr<grpc_auth_context, void (*)(grpc_auth_context*)> context(grpc_call_auth_context(call_),
                                                                                 grpc_auth_context_release);
  grpc_auth_property_iterator found =
      grpc_auth_context_find_properties_by_name(context.get(), GRPC_X509_PEM_CERT_PROPERTY_NAME);
  const grpc_auth_property* const certificate = grpc_auth_property_iterator_next(&found);
  return certificate == nullptr ||
         roles->Of({certificate->value, certificate->value_length}) == CertificateRole::kClient;
}

absl::Time GrpcIncomingCall::deadline() const {
  const gpr_timespec time = gpr_convert_clock_type(deadline_, GPR_CLOCK_MONOTONIC);
  if (gpr_time_cmp(time, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0) return absl::InfiniteFuture();
  const gpr_timespec left = gpr_time_sub(time, gpr_now(GPR_CLOCK_MONOTONIC));
  return Clock::Real()->Now() + absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

std::string GrpcIncomingCall::peer() const {
  char* const text = grpc_call_get_peer(call_);
  std::string peer = WithPlainAddresses(CopyText(text));
  gpr_free(text);
  return peer;
}

void GrpcIncomingCall::Reply(StatusOr<Bytes> answer) {
  MR_CHECK(!answered_.exchange(true));
  if (answer.ok() && answer->size() > kMaxGrpcMessage) {
    answer = ResourceExhausted("an answer of ", answer->size(), " bytes is more than the 4 GiB that gRPC carries");
  }
  grpc_op ops[3];
  std::memset(ops, 0, sizeof(ops));
  size_t count = 0;
  ops[count++].op = GRPC_OP_SEND_INITIAL_METADATA;
  grpc_slice details = grpc_empty_slice();
  if (answer.ok()) {
    answer_ = ToByteBuffer(*answer);
    answer = Bytes();
    ops[count].op = GRPC_OP_SEND_MESSAGE;
    ops[count++].data.send_message.send_message = answer_.get();
  } else {
    const std::string message = ToGrpcMessage(answer.status().message());
    details = grpc_slice_from_copied_buffer(message.data(), message.size());
  }
  ops[count].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
  ops[count].data.send_status_from_server.status = ToGrpcCode(answer.status().code());
  ops[count++].data.send_status_from_server.status_details = &details;
  Ref();
  // The listener may be gone once the answer is sent.
  listener_->OnAnswer();
  const grpc_call_error error = grpc_call_start_batch(call_, ops, count, sent_.Tag(), nullptr);
  grpc_slice_unref(details);
  MR_CHECK(error == GRPC_CALL_OK);
}

void GrpcIncomingCall::OnSent(bool ok) {
  answer_.reset();
  EndPart();
  Unref();
}

void GrpcIncomingCall::OnClosed(bool ok) {
  if (cancelled_ != 0 && !answered_) cancellation_.StartCancel(Cancelled("the caller gave up or is gone"));
  EndPart();
  Unref();
}

void GrpcIncomingCall::EndPart() {
  if (parts_.fetch_sub(1, std::memory_order_acq_rel) == 1) listener_->OnEnd(this);
}

}  // namespace millrace::net
