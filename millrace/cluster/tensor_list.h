// The repeated tensors of a message, with errors that name the one they are about.
#pragma once

#include <string>
#include <vector>

#include "millrace/cluster/codec.h"
#include "millrace/cluster/tensor_wire.h"

namespace millrace {

// Which tensors: "feed" of "RunStepRequest".
struct TensorRole {
  uint32_t field;
  const char* what;
  const char* message;
};

Status WriteTensors(const TensorRole& role, const NamedTensors& tensors, MessageWriter* out);
Status WriteTensors(const TensorRole& role, const std::vector<Tensor>& tensors, MessageWriter* out);

// Reads the element that `in` stands at. The error is the tensor's; what is malformed is told by in->End.
Status ReadTensor(const TensorRole& role, FieldReader* in, RepeatLimit* repeats, NamedTensors* tensors);
Status ReadTensor(const TensorRole& role, FieldReader* in, RepeatLimit* repeats, std::vector<Tensor>* tensors);

// status_code and status_error_message as a Status.
Status StatusFromFields(uint64_t code, const std::string& message);

}  // namespace millrace
