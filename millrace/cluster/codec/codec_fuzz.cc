// Decodes any bytes as each of the messages with tensors: the codec must accept, reject and read the same as protobuf.
// The first byte selects the message, the second where the rest is split into pieces. Messages of streamed steps, which
// have no protobuf counterpart, must give an error or survive a round trip.
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "google/protobuf/stubs/logging.h"
#include "millrace/cluster/codec/codec_reference_testing.h"
#include "millrace/cluster/codec/step_wire.h"

namespace {

using namespace millrace;  // NOLINT

// A few bytes may request tensors of any size, which the codec rejects if they are too large; that is not a bug to
// find.
size_t Elements(const google::protobuf::RepeatedPtrField<pb::NamedTensorProto>& tensors) {
  size_t elements = 0;
  for (const auto& item : tensors) {
    StatusOr<Shape> shape = Shape::FromProto(item.tensor().tensor_shape());
    if (shape.ok()) elements += std::min<size_t>(shape->num_elements(), 1 << 24);
  }
  return elements;
}

// From this value on, the first byte selects a message of streamed steps.
constexpr uint8_t kStreamed = 0xf0;

template <typename T>
void CheckStreamed(const StatusOr<T>& read, StatusOr<net::Bytes> (*encode)(const T&),
                   StatusOr<T> (*decode)(const net::Bytes&, Allocator*)) {
  if (!read.ok()) {
    MR_CHECK(!read.status().message().empty());
    return;
  }
  const StatusOr<net::Bytes> written = encode(*read);
  if (!written.ok()) return;  // a variant of a type that cannot be written
  const StatusOr<T> again = decode(*written, Allocator::Heap());
  MR_CHECK(again.ok());
  MR_CHECK(encode(*again)->Flatten() == written->Flatten());
}

StatusOr<net::Bytes> EncodeUntimed(const SteppedTensors& tensors) { return EncodeTensors(tensors, 0); }

void FuzzStreamed(int kind, const net::Bytes& bytes) {
  if (kind == 0) CheckStreamed(DecodeTensors(bytes, Allocator::Heap()), EncodeUntimed, DecodeTensors);
  if (kind == 1) CheckStreamed(DecodeStepStart(bytes, Allocator::Heap()), EncodeStepStart, DecodeStepStart);
  if (kind == 2) CheckStreamed(DecodeStepEnd(bytes, Allocator::Heap()), EncodeStepEnd, DecodeStepEnd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer silencer;  // malformed input is expected
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = std::min<size_t>(data[1], text.size());
  net::Bytes bytes = net::Bytes::Of(text.substr(0, cut));
  bytes.Append(net::Bytes::Of(text.substr(cut)));
  if (data[0] >= kStreamed) {
    FuzzStreamed(data[0] % 3, bytes);
    return 0;
  }

  static const char* const kTypes[] = {"RunStepRequest",      "RunStepResponse", "RunCallableRequest",
                                       "RunCallableResponse", "RunGraphRequest", "RunGraphResponse",
                                       "RecvTensorResponse"};
  // Treats the fields of all messages as tensors; those that are not are small.
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
