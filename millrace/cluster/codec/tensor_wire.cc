#include "millrace/cluster/codec/tensor_wire.h"

#include <algorithm>
#include <utility>

#include "millrace/net/received_buffer.h"
#include "millrace/proto/tensor.pb.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace {
namespace {

// Smaller contents are copied, which costs a transport less than a piece of their own.
constexpr size_t kShareFrom = 1024;

// From this size on, a tensor takes over the memory that it was received into.
constexpr size_t kKeepFrom = 4096;

// Fields of NamedTensorProto, TensorProto, TensorShapeProto and its Dim.
enum : uint32_t { kName = 1, kTensor = 2 };
enum : uint32_t { kDType = 1, kShape = 2, kVersion = 3, kContent = 4, kFirstTyped = 5, kLastTyped = 18 };
enum : uint32_t { kDim = 2, kUnknownRank = 3 };
enum : uint32_t { kDimSize = 1, kDimName = 2 };

// The memory that the next `size` bytes were received into, if a tensor can take it over: they are contiguous, aligned,
// and most of the block. Null if they must be copied.
RefPtr<Buffer> ReceivedMemory(net::BytesReader at, size_t size, size_t* offset) {
  net::Bytes bytes;
  if (size < kKeepFrom || !at.ReadBytes(size, &bytes) || bytes.pieces().size() != 1) return nullptr;
  const net::Bytes::Piece& piece = bytes.pieces()[0];
  const auto* const buffer = dynamic_cast<const net::ReceivedBuffer*>(piece.owner.get());
  if (buffer == nullptr || reinterpret_cast<uintptr_t>(piece.data.data()) % Buffer::kAlignment != 0) return nullptr;
  // A small tensor must not keep a large block alive.
  if (buffer->size() > 2 * size) return nullptr;
  *offset = static_cast<size_t>(piece.data.data() - static_cast<const char*>(buffer->data()));
  return ShareRef(const_cast<net::ReceivedBuffer*>(buffer));
}

// The size of a field of `size` bytes including its tag, which has one byte here, and its length.
size_t FieldSize(size_t size) { return 1 + VarintSize(size) + size; }

size_t DimSize(int64_t dim) { return dim == 0 ? 0 : 1 + VarintSize(static_cast<uint64_t>(dim)); }

size_t ShapeSize(const Shape& shape) {
  size_t size = 0;
  for (int64_t dim : shape.dims()) size += FieldSize(DimSize(dim));
  return size;
}

size_t ContentSize(const Tensor& tensor) {
  if (tensor.dtype() != DType::kString) return tensor.TotalBytes();
  size_t size = 0;
  for (const std::string& s : tensor.flat<std::string>()) size += VarintSize(s.size()) + s.size();
  return size;
}

// Writes what surrounds the TensorProto, and checks that the message stays within the limit.
Status Open(uint32_t field, const string_view* name, size_t tensor_size, const Tensor& tensor, MessageWriter* out) {
  const size_t name_size = name == nullptr || name->empty() ? 0 : FieldSize(name->size());
  const size_t size = name == nullptr ? tensor_size : name_size + FieldSize(tensor_size);
  if (size > out->most() || out->size() + FieldSize(size) > out->most()) {
    return InvalidArgument(DTypeName(tensor.dtype()), tensor.shape().ToString(), " takes ", tensor_size,
                           " bytes, behind ", out->size(), " others; a message can hold ", out->most(), " at most");
  }
  out->Varint(BytesTag(field));
  out->Varint(size);
  if (name == nullptr) return absl::OkStatus();
  out->String(kName, *name);
  out->Varint(BytesTag(kTensor));
  out->Varint(tensor_size);
  return absl::OkStatus();
}

void WriteShape(const Shape& shape, size_t size, MessageWriter* out) {
  out->Varint(BytesTag(kShape));
  out->Varint(size);
  for (int64_t dim : shape.dims()) {
    out->Varint(BytesTag(kDim));
    out->Varint(DimSize(dim));
    out->Number(kDimSize, dim);
  }
}

void WriteContent(const Tensor& tensor, size_t size, MessageWriter* out) {
  if (size == 0) return;
  out->Varint(BytesTag(kContent));
  out->Varint(size);
  if (tensor.dtype() == DType::kString) {
    for (const std::string& s : tensor.flat<std::string>()) out->Varint(s.size());
    for (const std::string& s : tensor.flat<std::string>()) out->Text(s);
    return;
  }
  const string_view data(static_cast<const char*>(tensor.raw_data()), size);
  if (size < kShareFrom || !tensor.buffer()) {
    out->Text(data);
  } else {
    out->Piece(data, tensor.buffer());
  }
}

// Resources and variants.
Status WriteObjects(uint32_t field, const string_view* name, const Tensor& tensor, MessageWriter* out) {
  if (tensor.dtype() == DType::kVariant) {
    for (const Variant& v : tensor.flat<Variant>()) {
      std::string metadata;
      std::vector<Tensor> tensors;
      if (!v.empty()) MR_RETURN_IF_ERROR(v.value()->Encode(&metadata, &tensors));
    }
  }
  pb::TensorProto proto;
  TensorToProto(tensor, &proto);
  if (const size_t size = proto.ByteSizeLong(); size > MessageWriter::kMaxSize) {
    return InvalidArgument(DTypeName(tensor.dtype()), tensor.shape().ToString(), " takes ", size,
                           " bytes; protobuf can hold ", MessageWriter::kMaxSize, " at most");
  }
  MR_RETURN_IF_ERROR(Open(field, name, proto.ByteSizeLong(), tensor, out));
  proto.AppendPartialToString(out->text());
  return absl::OkStatus();
}

Status Write(uint32_t field, const string_view* name, const Tensor& tensor, MessageWriter* out) {
  const DType dtype = tensor.dtype();
  if (!IsKnown(dtype) || IsRef(dtype))
    return InvalidArgument("a tensor of this type cannot be sent: ", DTypeName(dtype));
  if (dtype != DType::kString && !IsPlain(dtype)) return WriteObjects(field, name, tensor, out);
  const size_t shape_size = ShapeSize(tensor.shape());
  const size_t content_size = ContentSize(tensor);
  const size_t size = 2 + FieldSize(shape_size) + (content_size == 0 ? 0 : FieldSize(content_size));
  MR_RETURN_IF_ERROR(Open(field, name, size, tensor, out));
  out->Number(kDType, static_cast<int>(dtype));  // two bytes
  WriteShape(tensor.shape(), shape_size, out);
  WriteContent(tensor, content_size, out);
  return absl::OkStatus();
}

}  // namespace

Status WriteTensor(uint32_t field, const Tensor& tensor, MessageWriter* out) {
  return Write(field, nullptr, tensor, out);
}

Status WriteNamedTensor(uint32_t field, string_view name, const Tensor& tensor, MessageWriter* out) {
  return Write(field, &name, tensor, out);
}

Status ReadContent(net::BytesReader* in, DType dtype, const Shape& shape, Allocator* allocator, Tensor* tensor) {
  const size_t size = static_cast<size_t>(shape.num_elements()) * SizeOf(dtype);
  size_t offset = 0;
  // Any byte but 0 and 1 in a bool would be undefined behaviour later, so those are copied.
  if (dtype != DType::kBool && size > 0) {
    if (RefPtr<Buffer> memory = ReceivedMemory(*in, size, &offset)) {
      *tensor = Tensor(dtype, shape, std::move(memory), offset);
      MR_CHECK(in->Skip(size));
      return absl::OkStatus();
    }
  }
  MR_RETURN_IF_ERROR(Tensor::MakeInto(dtype, shape, allocator, tensor));
  if (size == 0) return absl::OkStatus();
  MR_CHECK(in->Read(tensor->raw_data(), size));
  if (dtype == DType::kBool) {
    uint8_t* bytes = tensor->raw<uint8_t>();
    std::transform(bytes, bytes + size, bytes, [](uint8_t b) { return b != 0; });
  }
  return absl::OkStatus();
}

void TensorField::ScanShape(FieldReader in, FieldReader* parent) {
  while (in.Next()) {
    if (in.tag() == VarintTag(kUnknownRank)) plain_ = false;
    if (in.tag() != BytesTag(kDim)) {
      in.Skip();
      continue;
    }
    int64_t size = 0;
    FieldReader dim = in.Enter();
    while (dim.Next()) {
      std::string name;
      switch (dim.tag()) {
        case VarintTag(kDimSize):
          size = static_cast<int64_t>(dim.number());
          break;
        case BytesTag(kDimName):
          dim.ReadString(&name);
          break;
        default:
          dim.Skip();
      }
    }
    if (!dim.ok()) in.Fail();
    // An error for too many dimensions is reported by the path through protobuf.
    if (dims_.size() < Shape::kMaxRank) {
      dims_.push_back(size);
    } else {
      plain_ = false;
    }
  }
  if (!in.ok()) parent->Fail();
}

void TensorField::Scan(FieldReader* field) {
  protos_.push_back({field->place(), field->size()});
  FieldReader in = field->Enter();
  while (in.Next()) {
    switch (in.tag()) {
      case VarintTag(kDType):
        dtype_ = static_cast<DType>(static_cast<int32_t>(in.number()));
        break;
      case BytesTag(kShape):
        ScanShape(in.Enter(), &in);
        break;
      case BytesTag(kContent):
        content_ = Place{in.place(), in.size()};
        in.Skip();
        break;
      default:
        if (in.field() >= kFirstTyped && in.field() <= kLastTyped) plain_ = false;
        in.Skip();
    }
  }
  if (!in.ok()) field->Fail();
}

Status TensorField::Read(Allocator* allocator, RepeatLimit* repeats, Tensor* tensor) const {
  const size_t content_size = content_ ? content_->size : 0;
  // Without content there are no elements, as for a control edge, or all elements are zero.
  const bool whole = content_size > 0 || std::find(dims_.begin(), dims_.end(), 0) != dims_.end();
  if (!plain_ || !whole || !IsPlain(dtype_)) return ReadProto(allocator, repeats, tensor);
  MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims_));
  size_t size;
  if (__builtin_mul_overflow(static_cast<size_t>(shape.num_elements()), SizeOf(dtype_), &size) ||
      size != content_size) {
    return InvalidArgument("a TensorProto of ", DTypeName(dtype_), shape.ToString(), " has ", content_size,
                           " bytes of tensor_content instead of ", size);
  }
  net::BytesReader at = size == 0 ? protos_[0].at : content_->at;
  return ReadContent(&at, dtype_, shape, allocator, tensor);
}

net::Bytes TensorField::Merged() const {
  net::Bytes bytes;  // concatenated messages are merged by the parser
  for (Place place : protos_) {
    net::Bytes part;
    MR_CHECK(place.at.ReadBytes(place.size, &part));
    bytes.Append(std::move(part));
  }
  return bytes;
}

Status TensorField::CheckMessage() const {
  pb::TensorProto proto;
  return plain_ ? absl::OkStatus() : net::Parse(Merged(), &proto);
}

Status TensorField::ReadProto(Allocator* allocator, RepeatLimit* repeats, Tensor* tensor) const {
  const net::Bytes bytes = Merged();
  pb::TensorProto proto;
  MR_RETURN_IF_ERROR(net::Parse(bytes, &proto));
  if (StatusOr<Shape> shape = Shape::FromProto(proto.tensor_shape()); shape.ok()) {
    size_t size;
    const bool fits = !__builtin_mul_overflow(static_cast<size_t>(shape->num_elements()), SizeOf(dtype_), &size);
    const size_t beyond = !fits ? SIZE_MAX : size > bytes.size() ? size - bytes.size() : 0;
    if (proto.tensor_content().empty() && beyond > repeats->left) {
      return ResourceExhausted("a TensorProto of ", DTypeName(dtype_), shape->ToString(), " has only ", bytes.size(),
                               " bytes; repeating a value for so large a tensor is refused");
    }
    if (proto.tensor_content().empty()) repeats->left -= beyond;
  }
  MR_ASSIGN_OR_RETURN(*tensor, TensorFromProto(proto, allocator));
  return absl::OkStatus();
}

}  // namespace millrace
