// A tensor within a message: TensorProto and NamedTensorProto, without a copy through protobuf where the tensor is plain numbers.
#pragma once

#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "millrace/cluster/field_reader.h"
#include "millrace/cluster/message_writer.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Both write `tensor` with tensor_content, its memory shared where it is large. INVALID_ARGUMENT when the message would pass what
// protobuf can hold or there is no value, UNIMPLEMENTED for a variant that has no form for the wire; the writer is then of no use.
Status WriteTensor(uint32_t field, const Tensor& tensor, MessageWriter* out);
Status WriteNamedTensor(uint32_t field, string_view name, const Tensor& tensor, MessageWriter* out);

// The next bytes of `in`, which has as many, as the contents of a tensor of a plain type.
Status ReadContent(net::BytesReader* in, DType dtype, const Shape& shape, Allocator* allocator, Tensor* tensor);

// What a message may still ask for beyond the bytes it has: typed values repeat, so that a few bytes stand for a large tensor.
struct RepeatLimit {
  size_t left = size_t{128} << 20;
};

// Reads a TensorProto: first where everything is, then the values into the tensor's own memory.
class TensorField {
 public:
  // `in` stands at the TensorProto. Found again, it is merged with the first, as protobuf does.
  void Scan(FieldReader* in);
  // Errors are those of TensorFromProto. The Bytes that were scanned are still there.
  Status Read(Allocator* allocator, RepeatLimit* repeats, Tensor* tensor) const;

 private:
  struct Place {
    net::BytesReader at;
    size_t size;
  };

  void ScanShape(FieldReader in, FieldReader* parent);
  // By way of protobuf, for all that is not plain content.
  Status ReadProto(Allocator* allocator, RepeatLimit* repeats, Tensor* tensor) const;

  absl::InlinedVector<Place, 1> protos_;
  std::optional<Place> content_;
  DType dtype_ = DType::kInvalid;
  Shape::Dims dims_;
  bool plain_ = true;  // nothing but dtype, shape and content
};

}  // namespace millrace
