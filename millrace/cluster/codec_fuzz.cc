// Any bytes as any of the messages with tensors: the codec takes and refuses what protobuf does, and reads the same from it. The first
// byte chooses the message, the second where the rest is cut into pieces.
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "google/protobuf/stubs/logging.h"
#include "millrace/cluster/codec_reference_testing.h"

namespace {

using namespace millrace;  // NOLINT

// A few bytes may ask for tensors of any size, of which the codec refuses what is too much; that is no fault to be found.
size_t Elements(const google::protobuf::RepeatedPtrField<pb::NamedTensorProto>& tensors) {
  size_t elements = 0;
  for (const auto& item : tensors) {
    StatusOr<Shape> shape = Shape::FromProto(item.tensor().tensor_shape());
    if (shape.ok()) elements += std::min<size_t>(shape->num_elements(), 1 << 24);
  }
  return elements;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer silencer;  // what is malformed is the point
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = std::min<size_t>(data[1], text.size());
  net::Bytes bytes = net::Bytes::Of(text.substr(0, cut));
  bytes.Append(net::Bytes::Of(text.substr(cut)));

  static const char* const kTypes[] = {"RunStepRequest", "RunStepResponse", "RunCallableRequest", "RunCallableResponse",
                                       "RunGraphRequest", "RunGraphResponse", "RecvTensorResponse"};
  // The fields of all of them as tensors, whichever are: what is not is small.
  size_t elements = 0;
  pb::RunStepRequest step;
  if (step.ParsePartialFromString(text)) elements += Elements(step.feed());
  pb::RunStepResponse answer;
  if (answer.ParsePartialFromString(text)) elements += Elements(answer.tensor());
  pb::RunGraphRequest run;
  if (run.ParsePartialFromString(text)) elements += Elements(run.send());
  pb::RunCallableRequest callable;
  pb::RunCallableResponse result;
  google::protobuf::RepeatedPtrField<pb::NamedTensorProto> bare;
  if (callable.ParsePartialFromString(text)) {
    for (const auto& tensor : callable.feed()) *bare.Add()->mutable_tensor() = tensor;
  }
  if (result.ParsePartialFromString(text)) {
    for (const auto& tensor : result.fetch()) *bare.Add()->mutable_tensor() = tensor;
  }
  pb::RecvTensorResponse recv;
  if (recv.ParsePartialFromString(text)) *bare.Add()->mutable_tensor() = recv.tensor();
  if (elements + Elements(bare) > (1 << 20)) return 0;

  const Status status = millrace::testing::CheckAgainstProtobuf(kTypes[data[0] % 7], bytes);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  MR_CHECK(status.ok());
  return 0;
}
