#include "millrace/ops/data_flow/lookup_table.h"

#include <algorithm>
#include <cstring>

namespace millrace {

Status LookupTable::Initialize(const Tensor&, const Tensor&) {
  return InvalidArgument("Table ", options_.name, " is not initializable");
}

std::string LookupTable::DebugString() const {
  return absl::StrCat("table '", options_.name, "' from ", DTypeName(options_.key_dtype), " to ",
                      DTypeName(options_.value_dtype), options_.value_shape.ToString(), ": ", size(), " keys");
}

StatusOr<Shape> LookupTable::ValuesShape(const Tensor& keys, const Shape& key_shape) const {
  const int batch = keys.rank() - key_shape.rank();
  if (batch < 0 || Shape(keys.shape().dims().subspan(static_cast<size_t>(std::max(batch, 0)))) != key_shape) {
    return InvalidArgument("Input key shape ", keys.shape().ToString(), " must end with the table's key shape ",
                           key_shape.ToString());
  }
  Shape::Dims dims(keys.shape().dims().begin(), keys.shape().dims().begin() + batch);
  dims.insert(dims.end(), options_.value_shape.dims().begin(), options_.value_shape.dims().end());
  return Shape::Make(dims);
}

Status LookupTable::CheckValues(const Tensor& keys, const Shape& key_shape, const Tensor& values) const {
  MR_ASSIGN_OR_RETURN(const Shape expected, ValuesShape(keys, key_shape));
  if (values.shape() == expected) return absl::OkStatus();
  return InvalidArgument("Expected shape ", expected.ToString(), " for value, got ", values.shape().ToString());
}

// MurmurHash64A.
uint64_t HashText(absl::string_view text) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995;
  uint64_t h = 0xDECAFCAFFEull ^ (text.size() * kMul);
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t k;
    std::memcpy(&k, text.data() + i, 8);
    k *= kMul;
    k ^= k >> 47;
    k *= kMul;
    h = (h ^ k) * kMul;
  }
  if (i < text.size()) {
    uint64_t tail = 0;
    std::memcpy(&tail, text.data() + i, text.size() - i);
    h = (h ^ tail) * kMul;
  }
  h ^= h >> 47;
  h *= kMul;
  return h ^ (h >> 47);
}

}  // namespace millrace
