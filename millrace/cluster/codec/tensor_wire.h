// Reads and writes TensorProto and NamedTensorProto within a message, without a copy through protobuf if the tensor
// consists of plain numbers.
#pragma once

#include <optional>
#include <string>

#include "absl/container/inlined_vector.h"
#include "millrace/cluster/codec/field_reader.h"
#include "millrace/cluster/codec/message_writer.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Both write `tensor` with tensor_content, sharing its memory if it is large. INVALID_ARGUMENT if the message would
// exceed protobuf's limit or the tensor has no value, UNIMPLEMENTED for a variant that cannot be serialized; the writer
// is unusable then.
Status WriteTensor(uint32_t field, const Tensor& tensor, MessageWriter* out);
Status WriteNamedTensor(uint32_t field, string_view name, const Tensor& tensor, MessageWriter* out);

// Reads the contents of a tensor of a plain type from `in`, which must have enough bytes left.
Status ReadContent(net::BytesReader* in, DType dtype, const Shape& shape, Allocator* allocator, Tensor* tensor);

// Limits the memory that a message can request beyond its own size: typed values may repeat, so that a few bytes stand
// for a large tensor.
struct RepeatLimit {
  size_t left = size_t{128} << 20;
};

// Reads a TensorProto in two passes: first locates the fields, then reads the values into the tensor's own memory.
class TensorField {
 public:
  // `in` is at the TensorProto. If the field occurs again, it is merged with the first, as in protobuf.
  void Scan(FieldReader* in);
  // Returns the errors of TensorFromProto. The scanned Bytes must still be alive.
  Status Read(Allocator* allocator, RepeatLimit* repeats, Tensor* tensor) const;
  // Whether it is a TensorProto at all, whatever its values are.
  Status CheckMessage() const;

 private:
  struct Place {
    net::BytesReader at;
    size_t size;
  };

  void ScanShape(FieldReader in, FieldReader* parent);
  net::Bytes Merged() const;
  // Reads through protobuf, for everything but plain content.
  Status ReadProto(Allocator* allocator, RepeatLimit* repeats, Tensor* tensor) const;

  absl::InlinedVector<Place, 1> protos_;
  std::optional<Place> content_;
  DType dtype_ = DType::kInvalid;
  Shape::Dims dims_;
  bool plain_ = true;  // only dtype, shape and content were present
};

}  // namespace millrace
