// Reads and writes the repeated tensors of a message, with errors that name the tensor.
#pragma once

#include <string>
#include <vector>

#include "millrace/cluster/codec/codec.h"
#include "millrace/cluster/codec/tensor_wire.h"

namespace millrace {

// The field of a run's identity in RunGraphRequest and RunCallableRequest (MillraceRun).
inline constexpr uint32_t kRunField = 100001;
inline constexpr uint32_t kCollectiveStepField = 100002;

// The role of the tensors in a message: "feed" of "RunStepRequest".
struct TensorRole {
  uint32_t field;
  const char* what;
  const char* message;
};

Status WriteTensors(const TensorRole& role, const NamedTensors& tensors, MessageWriter* out);
Status WriteTensors(const TensorRole& role, const std::vector<Tensor>& tensors, MessageWriter* out);

// Reads the element at the position of `in`. Returns the tensor's error; a malformed message is reported by in->End.
Status ReadTensor(const TensorRole& role, FieldReader* in, RepeatLimit* repeats, NamedTensors* tensors);
Status ReadTensor(const TensorRole& role, FieldReader* in, RepeatLimit* repeats, std::vector<Tensor>* tensors);

// Converts status_code and status_error_message to a Status.
Status StatusFromFields(uint64_t code, const std::string& message);

}  // namespace millrace
