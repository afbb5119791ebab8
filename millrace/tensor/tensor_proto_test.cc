#include "millrace/tensor/tensor_proto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace millrace {
namespace {

constexpr auto kInvalidProto = absl::StatusCode::kInvalidArgument;

pb::TensorProto Header(DType dtype, std::vector<int64_t> dims) {
  pb::TensorProto proto;
  proto.set_dtype(static_cast<pb::DataType>(dtype));
  for (int64_t d : dims) proto.mutable_tensor_shape()->add_dim()->set_size(d);
  return proto;
}

// One of each type, with values that a wrong conversion would change.
std::vector<Tensor> OneOfEach() {
  return {Tensor::Of<float>({1.5f, -0.0f, 1e30f, std::nanf("")}),
          Tensor::Of<double>({1e300, -2, -2}),
          Tensor::Of<half>({half(1.5f), half(-2.0f)}),
          Tensor::Of<bfloat16>({bfloat16(1.5f), bfloat16(-2.0f), bfloat16(-2.0f)}),
          Tensor::Of<int8_t>({-128, 127}),
          Tensor::Of<int16_t>({-32768, 32767}),
          Tensor::Of<int32_t>(Shape({2, 2}), {1, -2, 3, 3}),
          Tensor::Of<int64_t>({int64_t{-1} << 62, 5}),
          Tensor::Of<uint8_t>({0, 255}),
          Tensor::Of<uint16_t>({0, 65535}),
          Tensor::Of<uint32_t>({0, 0xffffffffu}),
          Tensor::Of<uint64_t>({0, ~uint64_t{0}}),
          Tensor::Of<bool>({true, false, false, false}),
          Tensor::Of<std::complex<float>>({{1, 2}, {3, -4}, {3, -4}}),
          Tensor::Of<std::complex<double>>({{1, 2}}),
          Tensor::Of<std::string>({"", std::string("a\0b", 3), std::string(300, 'x'), ""}),
          Tensor::Scalar<float>(3),
          Tensor(DType::kFloat, Shape({0, 3}))};
}

void ExpectSame(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(a.shape(), b.shape());
  if (a.dtype() == DType::kString) {
    EXPECT_EQ(a.flat<std::string>(), b.flat<std::string>());
  } else {
    EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), a.TotalBytes()), 0) << a.DebugString();
  }
}

TEST(TensorProtoTest, EveryTypeSurvivesAsContentAndAsFields) {
  for (const Tensor& tensor : OneOfEach()) {
    SCOPED_TRACE(tensor.DebugString());
    pb::TensorProto proto;
    TensorToProto(tensor, &proto);
    StatusOr<Tensor> content = TensorFromProto(proto);
    ASSERT_TRUE(content.ok()) << content.status();
    ExpectSame(tensor, *content);
    TensorToProtoFields(tensor, &proto);
    EXPECT_TRUE(proto.tensor_content().empty());
    StatusOr<Tensor> fields = TensorFromProto(proto);
    ASSERT_TRUE(fields.ok()) << fields.status();
    ExpectSame(tensor, *fields);
  }
}

TEST(TensorProtoTest, FieldsHoldTrailingRepeatsOnce) {
  pb::TensorProto proto;
  TensorToProtoFields(Tensor::Of<float>({1, 2, 2, 2, 2}), &proto);
  EXPECT_EQ(proto.float_val_size(), 2);
  // Negative zero is another value than zero.
  TensorToProtoFields(Tensor::Of<float>({0.0f, -0.0f}), &proto);
  EXPECT_EQ(proto.float_val_size(), 2);
}

TEST(TensorProtoTest, LastValueRepeatsAndNoneMeansZero) {
  pb::TensorProto proto = Header(DType::kInt64, {2, 3});
  proto.add_int64_val(4);
  proto.add_int64_val(7);
  ExpectSame(TensorFromProto(proto).value(), Tensor::Of<int64_t>(Shape({2, 3}), {4, 7, 7, 7, 7, 7}));
  proto.clear_int64_val();
  ExpectSame(TensorFromProto(proto).value(), Tensor::Of<int64_t>(Shape({2, 3}), {0, 0, 0, 0, 0, 0}));
  proto = Header(DType::kString, {3});
  proto.add_string_val("ab");
  ExpectSame(TensorFromProto(proto).value(), Tensor::Of<std::string>({"ab", "ab", "ab"}));
}

TEST(TensorProtoTest, HalvesAreBitPatterns) {
  pb::TensorProto proto = Header(DType::kHalf, {1});
  proto.add_half_val(0x3c00);
  EXPECT_EQ(static_cast<float>(TensorFromProto(proto).value().scalar<half>()), 1.0f);
}

TEST(TensorProtoTest, StringContentIsAllLengthsThenAllBytes) {
  pb::TensorProto proto;
  TensorToProto(Tensor::Of<std::string>({"hi", "world!"}), &proto);
  EXPECT_EQ(proto.tensor_content(), "\x02\x06hiworld!");
}

TEST(TensorProtoTest, AnyByteOfABoolIsTrueOrFalse) {
  pb::TensorProto proto = Header(DType::kBool, {3});
  proto.set_tensor_content(std::string("\x00\x01\x7f", 3));
  const Tensor t = TensorFromProto(proto).value();
  const uint8_t* bytes = t.raw<uint8_t>();
  EXPECT_EQ(std::vector<int>(bytes, bytes + 3), std::vector<int>({0, 1, 1}));
}

TEST(TensorProtoTest, ResourceHandlesKeepWhatNamesThem) {
  ResourceHandle handle;
  handle.device = "/cpu:0";
  handle.container = "c";
  handle.name = "w";
  handle.type_name = "Variable";
  handle.hash_code = 77;
  handle.dtypes_and_shapes = {{DType::kFloat, PartialShape({-1, 2})}};
  pb::TensorProto proto;
  TensorToProto(Tensor::Scalar(handle), &proto);
  const Tensor t = TensorFromProto(proto).value();
  const ResourceHandle& back = t.scalar<ResourceHandle>();
  EXPECT_EQ(back.DebugString(), handle.DebugString());
  EXPECT_EQ(back.hash_code, 77u);
  EXPECT_EQ(back.dtypes_and_shapes, handle.dtypes_and_shapes);
}

TEST(TensorProtoTest, MalformedMessagesAreErrors) {
  pb::TensorProto proto = Header(DType::kFloat, {2});
  proto.set_tensor_content("12345678x");
  EXPECT_EQ(TensorFromProto(proto).status().code(), kInvalidProto);
  proto.set_tensor_content("1234567");
  EXPECT_EQ(TensorFromProto(proto).status().code(), kInvalidProto);
  for (DType dtype : {DType::kInvalid, static_cast<DType>(33), static_cast<DType>(99), RefType(DType::kFloat),
                      static_cast<DType>(99), static_cast<DType>(-5)}) {
    EXPECT_EQ(TensorFromProto(Header(dtype, {1})).status().code(), kInvalidProto) << dtype;
  }
  EXPECT_EQ(TensorFromProto(Header(DType::kFloat, {-1})).status().code(), kInvalidProto);
  proto = Header(DType::kComplex64, {2});
  proto.add_scomplex_val(1);
  EXPECT_EQ(TensorFromProto(proto).status().code(), kInvalidProto);
  proto = Header(DType::kResource, {1});
  proto.set_tensor_content("x");
  EXPECT_EQ(TensorFromProto(proto).status().code(), kInvalidProto);
}

TEST(TensorProtoTest, MalformedStringContentIsAnError) {
  for (const std::string& content :
       {std::string("\x02", 1), std::string("\x02\x01hi"), std::string("\x02\x01hixy"),
        std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), std::string("\x01\xff"),
        std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01zz")}) {
    pb::TensorProto proto = Header(DType::kString, {2});
    proto.set_tensor_content(content);
    EXPECT_EQ(TensorFromProto(proto).status().code(), kInvalidProto) << content.size();
  }
}

TEST(TensorProtoTest, AFewBytesDoNotBecomeAnEnormousTensor) {
  for (DType dtype : {DType::kFloat, DType::kString, DType::kBool, DType::kResource}) {
    pb::TensorProto proto = Header(dtype, {int64_t{1} << 40});
    EXPECT_EQ(TensorFromProto(proto).status().code(), absl::StatusCode::kResourceExhausted) << dtype;
    proto.set_tensor_content("1234");
    EXPECT_EQ(TensorFromProto(proto).status().code(), kInvalidProto) << dtype;
  }
  EXPECT_EQ(TensorFromProto(Header(DType::kDouble, {int64_t{1} << 62})).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// A value that can travel.
class Note : public VariantValue {
 public:
  explicit Note(std::string text) : text(std::move(text)) {}
  absl::string_view TypeName() const override { return "millrace::test::Note"; }
  std::string DebugString() const override { return text; }
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override {
    *metadata = text;
    tensors->push_back(Tensor::Scalar<int32_t>(7));
    return absl::OkStatus();
  }
  const std::string text;
};
const VariantDecoder note_decoder("millrace::test::Note",
                                  [](const std::string& metadata,
                                     const std::vector<Tensor>& tensors) -> StatusOr<RefPtr<VariantValue>> {
                                    if (tensors.size() != 1) return InvalidArgument("a note without its tensor");
                                    return RefPtr<VariantValue>(MakeRef<Note>(metadata));
                                  });

TEST(TensorProtoTest, VariantsComeBackAsTheyWere) {
  Tensor t(DType::kVariant, Shape({2}));
  t.data<Variant>()[0] = Variant(MakeRef<Note>("hello"));
  pb::TensorProto proto;
  TensorToProto(t, &proto);
  const Tensor back = TensorFromProto(proto).value();
  ASSERT_EQ(back.shape(), Shape({2}));
  ASSERT_NE(back.data<Variant>()[0].Get<Note>(), nullptr);
  EXPECT_EQ(back.data<Variant>()[0].Get<Note>()->text, "hello");
  EXPECT_TRUE(back.data<Variant>()[1].empty());
  EXPECT_EQ(back.DebugString(), "variant[2] [<hello> <empty>]");

  proto.mutable_variant_val(0)->set_type_name("millrace::test::Nobody");
  EXPECT_EQ(TensorFromProto(proto).status().code(), absl::StatusCode::kUnimplemented);
  proto.mutable_variant_val()->RemoveLast();
  EXPECT_EQ(TensorFromProto(proto).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TensorProtoTest, QuantizedNumbersAreKeptAsTheyAre) {
  pb::TensorProto proto = Header(DType::kQUInt8, {3});
  for (int v : {1, 2, 255}) proto.add_int_val(v);
  const Tensor t = TensorFromProto(proto).value();
  EXPECT_EQ(t.dtype(), DType::kQUInt8);
  EXPECT_EQ(t.raw<uint8_t>()[2], 255);
  pb::TensorProto back;
  TensorToProtoFields(t, &back);
  EXPECT_EQ(back.SerializeAsString(), proto.SerializeAsString());
}

}  // namespace
}  // namespace millrace
