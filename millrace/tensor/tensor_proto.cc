#include "millrace/tensor/tensor_proto.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "millrace/base/varint.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/narrow_types.h"

namespace millrace {
namespace {

using google::protobuf::RepeatedField;
using google::protobuf::io::CodedOutputStream;

// Because the last value is repeated, a short message can describe a huge tensor. Legitimate constants are smaller than
// this; a broken or hostile peer may send larger ones.
constexpr size_t kMaxRepeatedBytes = size_t{512} << 20;

Status ContentLength(const pb::TensorProto& proto, DType dtype, const Shape& shape, size_t wanted) {
  return InvalidArgument("a TensorProto of ", DTypeName(dtype), shape.ToString(), " has ",
                         proto.tensor_content().size(), " bytes of tensor_content instead of ", wanted);
}

StatusOr<Tensor> StringsFromContent(const std::string& content, Shape shape, Allocator* allocator) {
  const int64_t n = shape.num_elements();
  absl::string_view rest = content;
  // Every element takes at least one byte for its length; check before allocating.
  if (static_cast<uint64_t>(n) > content.size()) {
    return InvalidArgument("a TensorProto of string", shape.ToString(), " has only ", content.size(),
                           " bytes of tensor_content");
  }
  std::vector<uint64_t> lengths(n);
  for (uint64_t& length : lengths) {
    if (!TakeVarint(&rest, &length)) {
      return InvalidArgument("the tensor_content of a TensorProto of string", shape.ToString(),
                             " has a malformed length of an element");
    }
  }
  MR_ASSIGN_OR_RETURN(Tensor t, Tensor::Make(DType::kString, std::move(shape), allocator));
  for (int64_t i = 0; i < n; ++i) {
    if (lengths[i] > rest.size()) {
      return InvalidArgument("element ", i, " of a TensorProto of string", t.shape().ToString(), " has ", lengths[i],
                             " bytes, but tensor_content has only ", rest.size(), " left");
    }
    t.data<std::string>()[i].assign(rest.data(), lengths[i]);
    rest.remove_prefix(lengths[i]);
  }
  if (!rest.empty()) {
    return InvalidArgument("a TensorProto of string", t.shape().ToString(), " has ", rest.size(),
                           " bytes of tensor_content too many");
  }
  return t;
}

StatusOr<Tensor> FromContent(const pb::TensorProto& proto, DType dtype, Shape shape, Allocator* allocator) {
  const std::string& content = proto.tensor_content();
  if (dtype == DType::kString) return StringsFromContent(content, std::move(shape), allocator);
  if (!IsPlain(dtype)) {
    return InvalidArgument("a TensorProto of ", DTypeName(dtype), " has tensor_content");
  }
  size_t bytes;
  if (__builtin_mul_overflow(static_cast<size_t>(shape.num_elements()), SizeOf(dtype), &bytes) ||
      bytes != content.size()) {
    return ContentLength(proto, dtype, shape, bytes);
  }
  MR_ASSIGN_OR_RETURN(Tensor t, Tensor::Make(dtype, std::move(shape), allocator));
  if (dtype == DType::kBool) {
    // A bool with any other byte would be undefined behaviour.
    std::transform(content.begin(), content.end(), t.data<bool>(), [](char c) { return c != 0; });
  } else if (bytes > 0) {
    std::memcpy(t.raw_data(), content.data(), bytes);
  }
  return t;
}

void HandleFromProto(const pb::ResourceHandleProto& proto, ResourceHandle* handle) {
  handle->device = proto.device();
  handle->container = proto.container();
  handle->name = proto.name();
  handle->type_name = proto.maybe_type_name();
  handle->hash_code = proto.hash_code();
  for (const auto& item : proto.dtypes_and_shapes()) {
    // The value's shape is advisory: treat a malformed one as unknown.
    StatusOr<PartialShape> shape = PartialShape::FromProto(item.shape());
    handle->dtypes_and_shapes.emplace_back(static_cast<DType>(item.dtype()),
                                           shape.ok() ? *std::move(shape) : PartialShape());
  }
}

void HandleToProto(const ResourceHandle& handle, pb::ResourceHandleProto* proto) {
  proto->set_device(handle.device);
  proto->set_container(handle.container);
  proto->set_name(handle.name);
  proto->set_maybe_type_name(handle.type_name);
  proto->set_hash_code(handle.hash_code);
  for (const auto& [dtype, shape] : handle.dtypes_and_shapes) {
    auto* item = proto->add_dtypes_and_shapes();
    item->set_dtype(static_cast<pb::DataType>(dtype));
    shape.ToProto(item->mutable_shape());
  }
}

// How values of type T are stored in the typed fields: field(proto) returns the repeated field, one element takes
// `kParts` numbers, and Read and Write convert.
template <typename T>
struct Field;
#define MR_FIELD(cpp, name, from, to)                                        \
  template <>                                                                \
  struct Field<cpp> {                                                        \
    static constexpr int kParts = 1;                                         \
    static const auto& Get(const pb::TensorProto& p) { return p.name(); }    \
    static auto* Mutable(pb::TensorProto* p) { return p->mutable_##name(); } \
    template <typename V>                                                    \
    static cpp Read(const V& values, int i) {                                \
      const auto v = values.Get(i);                                          \
      return from;                                                           \
    }                                                                        \
    template <typename V>                                                    \
    static void Write(cpp v, V* values) {                                    \
      values->Add(to);                                                       \
    }                                                                        \
  }
MR_FIELD(float, float_val, v, v);
MR_FIELD(double, double_val, v, v);
MR_FIELD(int32_t, int_val, v, v);
MR_FIELD(int16_t, int_val, static_cast<int16_t>(v), v);
MR_FIELD(int8_t, int_val, static_cast<int8_t>(v), v);
MR_FIELD(uint16_t, int_val, static_cast<uint16_t>(v), v);
MR_FIELD(uint8_t, int_val, static_cast<uint8_t>(v), v);
MR_FIELD(int64_t, int64_val, v, v);
MR_FIELD(uint32_t, uint32_val, v, v);
MR_FIELD(uint64_t, uint64_val, v, v);
MR_FIELD(bool, bool_val, v, v);
MR_FIELD(half, half_val, half::FromRaw(static_cast<uint16_t>(v)), v.bits);
MR_FIELD(bfloat16, half_val, bfloat16::FromRaw(static_cast<uint16_t>(v)), v.bits);
#undef MR_FIELD
#define MR_COMPLEX_FIELD(part, name)                                           \
  template <>                                                                  \
  struct Field<std::complex<part>> {                                           \
    static constexpr int kParts = 2;                                           \
    static const auto& Get(const pb::TensorProto& p) { return p.name(); }      \
    static auto* Mutable(pb::TensorProto* p) { return p->mutable_##name(); }   \
    static std::complex<part> Read(const RepeatedField<part>& values, int i) { \
      return {values.Get(2 * i), values.Get(2 * i + 1)};                       \
    }                                                                          \
    static void Write(std::complex<part> v, RepeatedField<part>* values) {     \
      values->Add(v.real());                                                   \
      values->Add(v.imag());                                                   \
    }                                                                          \
  }
MR_COMPLEX_FIELD(float, scomplex_val);
MR_COMPLEX_FIELD(double, dcomplex_val);
#undef MR_COMPLEX_FIELD
template <>
struct Field<std::string> {
  static constexpr int kParts = 1;
  static const auto& Get(const pb::TensorProto& p) { return p.string_val(); }
  static auto* Mutable(pb::TensorProto* p) { return p->mutable_string_val(); }
  template <typename V>
  static const std::string& Read(const V& values, int i) {
    return values.Get(i);
  }
  template <typename V>
  static void Write(const std::string& v, V* values) {
    values->Add()->assign(v);
  }
};
template <>
struct Field<ResourceHandle> {
  static constexpr int kParts = 1;
  static const auto& Get(const pb::TensorProto& p) { return p.resource_handle_val(); }
  static auto* Mutable(pb::TensorProto* p) { return p->mutable_resource_handle_val(); }
  template <typename V>
  static ResourceHandle Read(const V& values, int i) {
    ResourceHandle handle;
    HandleFromProto(values.Get(i), &handle);
    return handle;
  }
  template <typename V>
  static void Write(const ResourceHandle& v, V* values) {
    HandleToProto(v, values->Add());
  }
};

// A value that cannot be serialized is written as an empty variant; callers that send tensors check beforehand whether
// they may leave the process.
template <>
struct Field<Variant> {
  static auto* Mutable(pb::TensorProto* p) { return p->mutable_variant_val(); }
  template <typename V>
  static void Write(const Variant& v, V* values) {
    pb::VariantTensorDataProto* item = values->Add();
    std::string metadata;
    std::vector<Tensor> tensors;
    if (v.empty() || !v.value()->Encode(&metadata, &tensors).ok()) return;
    item->set_type_name(std::string(v.value()->TypeName()));
    item->set_metadata(std::move(metadata));
    for (const Tensor& t : tensors) TensorToProto(t, item->add_tensors());
  }
};

template <typename Fn>
bool DispatchAll(DType dtype, Fn&& fn) {
  return DispatchType(JoinTypes<PlainTypes, Types<std::string, ResourceHandle, Variant>>::type(), dtype, fn);
}

template <typename T>
StatusOr<Tensor> FromFields(const pb::TensorProto& proto, Shape shape, Allocator* allocator) {
  const auto& values = Field<T>::Get(proto);
  if (values.size() % Field<T>::kParts != 0) {
    return InvalidArgument("a TensorProto of ", DTypeOf<T>(), shape.ToString(), " has ", values.size(),
                           " numbers, which is not an even number");
  }
  const int64_t n = shape.num_elements();
  const int64_t given = std::min<int64_t>(n, values.size() / Field<T>::kParts);
  if (given<n&& static_cast<uint64_t>(n)> kMaxRepeatedBytes / sizeof(T)) {
    return ResourceExhausted("a TensorProto of ", DTypeOf<T>(), shape.ToString(), " has only ", given,
                             " values; the tensor is too large to fill by repeating the last one");
  }
  MR_ASSIGN_OR_RETURN(Tensor t, Tensor::Make(DTypeOf<T>(), std::move(shape), allocator));
  T* out = t.data<T>();
  for (int64_t i = 0; i < given; ++i) out[i] = Field<T>::Read(values, static_cast<int>(i));
  if (given == n) return t;
  if (given > 0) {
    std::fill(out + given, out + n, T(out[given - 1]));
  } else if (IsPlain(DTypeOf<T>())) {
    std::fill(out, out + n, T());
  }
  return t;
}

// One byte an element.
StatusOr<Tensor> Float8FromField(const pb::TensorProto& proto, DType dtype, Shape shape, Allocator* allocator) {
  const std::string& values = proto.float8_val();
  const auto n = static_cast<size_t>(shape.num_elements());
  const size_t given = std::min(n, values.size());
  if (given < n && n > kMaxRepeatedBytes) {
    return ResourceExhausted("a TensorProto of ", dtype, shape.ToString(), " has only ", given,
                             " values; the tensor is too large to fill by repeating the last one");
  }
  MR_ASSIGN_OR_RETURN(Tensor t, Tensor::Make(dtype, std::move(shape), allocator));
  auto* out = static_cast<char*>(t.raw_data());
  std::copy_n(values.data(), given, out);
  std::fill(out + given, out + n, given > 0 ? values[given - 1] : '\0');
  return t;
}

// Variants nest: a list may hold lists.
constexpr int kMaxVariantDepth = 16;

StatusOr<Tensor> FromProto(const pb::TensorProto& proto, Allocator* allocator, int depth);

StatusOr<Tensor> VariantsFromFields(const pb::TensorProto& proto, Shape shape, Allocator* allocator, int depth) {
  if (depth >= kMaxVariantDepth) return InvalidArgument("variants are nested more than ", depth, " deep");
  const int64_t n = shape.num_elements();
  if (n != proto.variant_val_size()) {
    return InvalidArgument("a TensorProto of variant", shape.ToString(), " has ", proto.variant_val_size(), " values");
  }
  MR_ASSIGN_OR_RETURN(Tensor t, Tensor::Make(DType::kVariant, std::move(shape), allocator));
  for (int i = 0; i < n; ++i) {
    const pb::VariantTensorDataProto& item = proto.variant_val(i);
    std::vector<Tensor> tensors;
    for (const pb::TensorProto& inner : item.tensors()) {
      MR_ASSIGN_OR_RETURN(Tensor tensor, FromProto(inner, allocator, depth + 1));
      tensors.push_back(std::move(tensor));
    }
    MR_ASSIGN_OR_RETURN(t.data<Variant>()[i], VariantDecoder::Run(item.type_name(), item.metadata(), tensors));
  }
  return t;
}

template <typename T>
bool SameBits(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, std::string>) {
    return a == b;
  } else if constexpr (std::is_same_v<T, ResourceHandle> || std::is_same_v<T, Variant>) {
    return false;
  } else {
    return std::memcmp(&a, &b, sizeof(T)) == 0;
  }
}

void WriteHeader(const Tensor& tensor, pb::TensorProto* proto) {
  proto->Clear();
  proto->set_dtype(static_cast<pb::DataType>(tensor.dtype()));
  tensor.shape().ToProto(proto->mutable_tensor_shape());
}

void StringsToContent(absl::Span<const std::string> strings, std::string* content) {
  size_t bytes = 0;
  for (const std::string& s : strings) bytes += s.size() + CodedOutputStream::VarintSize64(s.size());
  content->reserve(bytes);
  for (const std::string& s : strings) {
    uint8_t varint[10];
    const uint8_t* end = CodedOutputStream::WriteVarint64ToArray(s.size(), varint);
    content->append(reinterpret_cast<const char*>(varint), end - varint);
  }
  for (const std::string& s : strings) content->append(s);
}

StatusOr<Tensor> FromProto(const pb::TensorProto& proto, Allocator* allocator, int depth) {
  const DType dtype = static_cast<DType>(proto.dtype());
  if (!IsKnown(dtype) || IsRef(dtype)) {
    return InvalidArgument("a TensorProto has the dtype ", DTypeName(dtype), ", which is not supported");
  }
  MR_ASSIGN_OR_RETURN(Shape shape, Shape::FromProto(proto.tensor_shape()));
  if (!proto.tensor_content().empty()) return FromContent(proto, dtype, std::move(shape), allocator);
  if (dtype == DType::kVariant) return VariantsFromFields(proto, std::move(shape), allocator, depth);
  if (IsFloat8(dtype)) return Float8FromField(proto, dtype, std::move(shape), allocator);
  StatusOr<Tensor> result = Internal("no reader for dtype ", DTypeName(dtype));
  DispatchAll(UnquantizedType(dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, Variant>) result = FromFields<T>(proto, std::move(shape), allocator);
  });
  if (result.ok() && result->dtype() != dtype) return result->ViewAs(dtype, result->shape());
  return result;
}

}  // namespace

StatusOr<Tensor> TensorFromProto(const pb::TensorProto& proto, Allocator* allocator) {
  return FromProto(proto, allocator, 0);
}

void TensorToProto(const Tensor& tensor, pb::TensorProto* proto) {
  if (tensor.dtype() == DType::kString) {
    WriteHeader(tensor, proto);
    StringsToContent(tensor.flat<std::string>(), proto->mutable_tensor_content());
  } else if (!tensor.IsInitialized() || !IsPlain(tensor.dtype())) {
    TensorToProtoFields(tensor, proto);
  } else {
    WriteHeader(tensor, proto);
    proto->mutable_tensor_content()->assign(static_cast<const char*>(tensor.raw_data()), tensor.TotalBytes());
  }
}

void TensorToProtoFields(const Tensor& tensor, pb::TensorProto* proto) {
  WriteHeader(tensor, proto);
  if (IsFloat8(tensor.dtype())) {
    proto->mutable_float8_val()->assign(static_cast<const char*>(tensor.raw_data()), tensor.TotalBytes());
    return;
  }
  const DType element = IsRef(tensor.dtype()) ? DType::kResource : UnquantizedType(tensor.dtype());
  DispatchAll(element, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const absl::Span<const T> values(tensor.raw<T>(), static_cast<size_t>(tensor.num_elements()));
    size_t needed = values.size();
    while (needed > 1 && SameBits(values[needed - 1], values[needed - 2])) --needed;
    auto* field = Field<T>::Mutable(proto);
    for (const T& v : values.first(needed)) Field<T>::Write(v, field);
  });
}

}  // namespace millrace
