#include "millrace/io/npy.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"

namespace millrace {
namespace {

// As NumPy writes it: version 1, a header padded with spaces.
std::string File(const std::string& header, const std::string& data) {
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + data;
}

void ExpectError(const std::string& bytes, absl::StatusCode code, absl::string_view part) {
  const Status status = ParseNpy(bytes).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), part)) << status;
}

TEST(NpyTest, WhatIsWrittenIsRead) {
  for (const Tensor& tensor : {Tensor::Of<float>(Shape({2, 3}), {1, 2, 3, 4, 5, 6}), Tensor::Scalar<int64_t>(-7),
                               Tensor::Of<bool>({true, false}), Tensor(DType::kDouble, Shape({3, 0})),
                               Tensor::Of<std::complex<float>>({{1, 2}})}) {
    const std::string bytes = FormatNpy(tensor).value();
    EXPECT_EQ(bytes.find('\n') % 64, 63);
    const StatusOr<Tensor> again = ParseNpy(bytes);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->DebugString(), tensor.DebugString());
    for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(ParseNpy(bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(FormatNpy(Tensor::Scalar("text")).status()));
}

TEST(NpyTest, ReadsWhatNumpyWrites) {
  const std::string header = "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }          \n";
  const Tensor tensor = ParseNpy(File(header, std::string("\1\0\2\0\xff\xff", 6))).value();
  EXPECT_EQ(tensor.DebugString(), Tensor::Of<int16_t>({1, 2, -1}).DebugString());
}

TEST(NpyTest, ErrorsSayWhatIsWrong) {
  const auto file = [](const std::string& type, const std::string& order, const std::string& shape) {
    return File("{'descr': " + type + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n", "12345678");
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectError("hello", kInvalid, "not a .npy file");
  ExpectError(file("'<U4'", "False", "(1,)"), kInvalid, "arrays of type <U4 cannot be read");
  ExpectError(file("'>f4'", "False", "(1,)"), kInvalid, "arrays of type >f4 cannot be read");
  ExpectError(file("[('a', '<f4')]", "False", "(1,)"), kInvalid, "cannot be read");
  ExpectError(file("'<f4'", "True", "(1, 2)"), kInvalid, "Fortran order");
  ExpectError(file("'<f4'", "False", "(-1,)"), kInvalid, "dimension '-1'");
  ExpectError(file("'<f4'", "False", "7"), kInvalid, "not a tuple");
  ExpectError(file("'<f4'", "False", "(3,)"), absl::StatusCode::kDataLoss, "[3] needs 3 values and there are 2");
  EXPECT_FALSE(ParseNpy(file("'<f4'", "False", "(4611686018427387904, 4)")).ok());
  ExpectError(File("{}", ""), kInvalid, "has no 'descr':");
}

}  // namespace
}  // namespace millrace
