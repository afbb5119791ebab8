#include "millrace/io/npy.h"

#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace millrace {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);

struct NpyType {
  const char* code;
  DType dtype;
};
constexpr NpyType kNpyTypes[] = {
    {"|b1", DType::kBool},      {"|i1", DType::kInt8},        {"|u1", DType::kUInt8},  {"<i2", DType::kInt16},
    {"<u2", DType::kUInt16},    {"<i4", DType::kInt32},       {"<u4", DType::kUInt32}, {"<i8", DType::kInt64},
    {"<u8", DType::kUInt64},    {"<f2", DType::kHalf},        {"<f4", DType::kFloat},  {"<f8", DType::kDouble},
    {"<c8", DType::kComplex64}, {"<c16", DType::kComplex128},
};

// The text after 'key': in the header, which is a Python dictionary.
StatusOr<absl::string_view> ValueOf(absl::string_view header, absl::string_view key) {
  const std::string quoted = absl::StrCat("'", key, "':");
  const size_t at = header.find(quoted);
  if (at == absl::string_view::npos) return InvalidArgument("the header of the .npy file has no ", quoted);
  return absl::StripLeadingAsciiWhitespace(header.substr(at + quoted.size()));
}

StatusOr<Shape> ShapeIn(absl::string_view header) {
  MR_ASSIGN_OR_RETURN(absl::string_view text, ValueOf(header, "shape"));
  const size_t end = text.find(')');
  if (!absl::ConsumePrefix(&text, "(") || end == absl::string_view::npos)
    return InvalidArgument("the shape in the header of the .npy file is not a tuple");
  std::vector<int64_t> dims;
  for (const absl::string_view part : absl::StrSplit(text.substr(0, end - 1), ',', absl::SkipWhitespace())) {
    int64_t dim = 0;
    if (!absl::SimpleAtoi(part, &dim) || dim < 0)
      return InvalidArgument("the shape in the header of the .npy file has the dimension '", part, "'");
    dims.push_back(dim);
  }
  return Shape::Make(dims);
}

}  // namespace

StatusOr<Tensor> ParseNpy(absl::string_view bytes) {
  if (!absl::ConsumePrefix(&bytes, kMagic) || bytes.size() < 4) return InvalidArgument("this is not a .npy file");
  const int version = static_cast<uint8_t>(bytes[0]);
  const size_t length_size = version == 1 ? 2 : 4;
  if (version < 1 || version > 3) return InvalidArgument("unknown version ", version, " of the .npy format");
  bytes.remove_prefix(2);
  size_t length = 0;
  if (bytes.size() < length_size) return DataLoss("the .npy file is truncated");
  for (size_t i = 0; i < length_size; ++i) length |= size_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  bytes.remove_prefix(length_size);
  if (bytes.size() < length) return DataLoss("the .npy file is truncated");
  const absl::string_view header = bytes.substr(0, length);
  bytes.remove_prefix(length);

  MR_ASSIGN_OR_RETURN(absl::string_view descr, ValueOf(header, "descr"));
  DType dtype = DType::kInvalid;
  const bool quoted = absl::ConsumePrefix(&descr, "'");
  descr = descr.substr(0, descr.find(quoted ? '\'' : ']'));
  for (const NpyType& type : kNpyTypes) {
    if (descr == type.code) dtype = type.dtype;
  }
  if (dtype == DType::kInvalid) return InvalidArgument("arrays of type ", descr, " cannot be read");
  MR_ASSIGN_OR_RETURN(const absl::string_view order, ValueOf(header, "fortran_order"));
  MR_ASSIGN_OR_RETURN(const Shape shape, ShapeIn(header));
  if (!absl::StartsWith(order, "False") && shape.rank() > 1)
    return InvalidArgument("arrays in Fortran order cannot be read; save it with numpy.ascontiguousarray");
  const uint64_t have = bytes.size() / SizeOf(dtype);
  if (static_cast<uint64_t>(shape.num_elements()) > have) {
    return DataLoss("the .npy file is truncated: ", shape.ToString(), " needs ", shape.num_elements(),
                    " values and there are ", have);
  }
  MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, shape));
  if (tensor.TotalBytes() > 0) std::memcpy(tensor.raw_data(), bytes.data(), tensor.TotalBytes());
  // A bool must be 0 or 1 in memory.
  if (dtype == DType::kBool) {
    auto* const values = static_cast<uint8_t*>(tensor.raw_data());
    for (int64_t i = 0; i < tensor.num_elements(); ++i) values[i] = values[i] != 0;
  }
  return tensor;
}

StatusOr<std::string> FormatNpy(const Tensor& tensor) {
  const char* code = nullptr;
  for (const NpyType& type : kNpyTypes) {
    if (type.dtype == tensor.dtype()) code = type.code;
  }
  if (code == nullptr) return InvalidArgument("NumPy's files have no type for ", tensor.dtype());
  std::string header = absl::StrCat("{'descr': '", code, "', 'fortran_order': False, 'shape': (");
  for (const int64_t dim : tensor.shape().dims()) absl::StrAppend(&header, dim, ",");
  absl::StrAppend(&header, "), }");
  // The data begin at a multiple of 64; the header ends with a new line.
  const size_t begin = kMagic.size() + 4;
  header.append(64 - (begin + header.size() + 1) % 64, ' ');
  header.push_back('\n');
  std::string bytes(kMagic);
  bytes.append("\x01\x00", 2);
  bytes.push_back(static_cast<char>(header.size() & 0xff));
  bytes.push_back(static_cast<char>(header.size() >> 8));
  bytes.append(header);
  bytes.append(static_cast<const char*>(tensor.raw_data()), tensor.TotalBytes());
  return bytes;
}

}  // namespace millrace
