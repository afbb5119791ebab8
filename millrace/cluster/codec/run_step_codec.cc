// Encodes and decodes RunStep and RunCallable.
#include "millrace/cluster/codec/codec.h"
#include "millrace/cluster/codec/tensor_fields.h"

namespace millrace {
namespace {

constexpr TensorRole kFeed = {2, "feed", "RunStepRequest"};
constexpr TensorRole kStepTensor = {1, "tensor", "RunStepResponse"};
constexpr TensorRole kCallableFeed = {3, "feed", "RunCallableRequest"};
constexpr TensorRole kCallableFetch = {1, "fetch", "RunCallableResponse"};

}  // namespace

pb::MillraceRun ToProto(const RunIdentity& identity) {
  pb::MillraceRun run;
  run.set_client(identity.client);
  run.set_number(identity.number);
  run.set_oldest(identity.oldest);
  run.set_attempt(identity.attempt);
  return run;
}

RunIdentity FromProto(const pb::MillraceRun& run) {
  return {.client = run.client(), .number = run.number(), .oldest = run.oldest(), .attempt = run.attempt()};
}

StatusOr<net::Bytes> EncodeRunStep(const RunStepCall& call) {
  MessageWriter out;
  out.String(1, call.session_handle);
  MR_RETURN_IF_ERROR(WriteTensors(kFeed, call.feeds, &out));
  for (const std::string& fetch : call.fetches) out.RepeatedString(3, fetch);
  for (const std::string& target : call.targets) out.RepeatedString(4, target);
  out.Message(5, call.options);
  out.String(6, call.partial_run_handle);
  out.Number(7, call.store_errors_in_response_body);
  out.Number(8, call.request_id);
  return std::move(out).Take("RunStepRequest");
}

StatusOr<RunStepCall> DecodeRunStep(const net::Bytes& bytes) {
  StatusOr<RunStepCall> result{absl::in_place};
  RunStepCall& call = *result;
  RepeatLimit repeats;
  net::BytesReader reader(bytes);
  FieldReader in(&reader);
  while (in.Next()) {
    if (in.tag() == BytesTag(2)) {
      MR_RETURN_IF_ERROR(ReadTensor(kFeed, &in, &repeats, &call.feeds));
    } else {
      in.Take(1, &call.session_handle) || in.Take(3, &call.fetches) || in.Take(4, &call.targets) ||
          in.Take(5, &call.options) || in.Take(6, &call.partial_run_handle) ||
          in.Take(7, &call.store_errors_in_response_body) || in.Take(8, &call.request_id) || in.Ignore();
    }
  }
  MR_RETURN_IF_ERROR(in.End("RunStepRequest"));
  return result;
}

StatusOr<net::Bytes> EncodeRunStepAnswer(const RunStepAnswer& answer) {
  MessageWriter out;
  MR_RETURN_IF_ERROR(WriteTensors(kStepTensor, answer.tensors, &out));
  out.Message(2, answer.metadata);
  out.StatusFields(3, 4, answer.status);
  return std::move(out).Take("RunStepResponse");
}

StatusOr<RunStepAnswer> DecodeRunStepAnswer(const net::Bytes& bytes) {
  StatusOr<RunStepAnswer> result{absl::in_place};
  RunStepAnswer& answer = *result;
  RepeatLimit repeats;
  uint64_t code = 0;
  std::string message;
  net::BytesReader reader(bytes);
  FieldReader in(&reader);
  while (in.Next()) {
    if (in.tag() == BytesTag(1)) {
      MR_RETURN_IF_ERROR(ReadTensor(kStepTensor, &in, &repeats, &answer.tensors));
    } else {
      in.Take(2, &answer.metadata) || in.Take(3, &code) || in.Take(4, &message) || in.Ignore();
    }
  }
  MR_RETURN_IF_ERROR(in.End("RunStepResponse"));
  answer.status = StatusFromFields(code, message);
  return result;
}

StatusOr<net::Bytes> EncodeRunCallable(const RunCallableCall& call) {
  MessageWriter out;
  out.String(1, call.session_handle);
  out.Number(2, call.handle);
  MR_RETURN_IF_ERROR(WriteTensors(kCallableFeed, call.feeds, &out));
  out.Number(4, call.request_id);
  if (call.run.given()) out.Message(kRunField, ToProto(call.run));
  return std::move(out).Take("RunCallableRequest");
}

StatusOr<RunCallableCall> DecodeRunCallable(const net::Bytes& bytes) {
  StatusOr<RunCallableCall> result{absl::in_place};
  RunCallableCall& call = *result;
  RepeatLimit repeats;
  pb::MillraceRun run;
  net::BytesReader reader(bytes);
  FieldReader in(&reader);
  while (in.Next()) {
    if (in.tag() == BytesTag(3)) {
      MR_RETURN_IF_ERROR(ReadTensor(kCallableFeed, &in, &repeats, &call.feeds));
    } else {
      in.Take(1, &call.session_handle) || in.Take(2, &call.handle) || in.Take(4, &call.request_id) ||
          in.Take(kRunField, &run) || in.Ignore();
    }
  }
  MR_RETURN_IF_ERROR(in.End("RunCallableRequest"));
  call.run = FromProto(run);
  return result;
}

StatusOr<net::Bytes> EncodeRunCallableAnswer(const RunCallableAnswer& answer) {
  MessageWriter out;
  MR_RETURN_IF_ERROR(WriteTensors(kCallableFetch, answer.fetches, &out));
  out.Message(2, answer.metadata);
  return std::move(out).Take("RunCallableResponse");
}

StatusOr<RunCallableAnswer> DecodeRunCallableAnswer(const net::Bytes& bytes) {
  StatusOr<RunCallableAnswer> result{absl::in_place};
  RunCallableAnswer& answer = *result;
  RepeatLimit repeats;
  net::BytesReader reader(bytes);
  FieldReader in(&reader);
  while (in.Next()) {
    if (in.tag() == BytesTag(1)) {
      MR_RETURN_IF_ERROR(ReadTensor(kCallableFetch, &in, &repeats, &answer.fetches));
    } else {
      in.Take(2, &answer.metadata) || in.Ignore();
    }
  }
  MR_RETURN_IF_ERROR(in.End("RunCallableResponse"));
  return result;
}

}  // namespace millrace
