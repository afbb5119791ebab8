#include "millrace/graph/op_schema.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/attr.h"
#include "millrace/graph/op_spec_parser.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OpAttr ParseAttr(absl::string_view spec) {
  OpAttr attr;
  Status status = ParseAttrSpec(spec, &attr);
  EXPECT_TRUE(status.ok()) << status;
  return attr;
}

TEST(OpSpecTest, AttrsHaveKindsDefaultsAndMinimums) {
  OpAttr n = ParseAttr("N: int >= 1 = 2");
  EXPECT_EQ(n.name, "N");
  EXPECT_EQ(n.type, "int");
  EXPECT_EQ(n.minimum, 1);
  EXPECT_EQ(n.default_value.i(), 2);
  EXPECT_EQ(ParseAttr("s: string = 'x y'").default_value.s(), "x y");
  EXPECT_EQ(ParseAttr("f: float = -1e-3").default_value.f(), -1e-3f);
  EXPECT_TRUE(ParseAttr("b: bool = true").default_value.b());
  EXPECT_EQ(ParseAttr("t: type = DT_INT64").default_value.type(), pb::DT_INT64);
  EXPECT_TRUE(ParseAttr("shape: shape = { unknown_rank: true }").default_value.shape().unknown_rank());
  OpAttr fixed = ParseAttr("shape: shape = { dim { size: 4 } dim { size: 2 } }");
  ASSERT_EQ(fixed.default_value.shape().dim_size(), 2);
  EXPECT_EQ(fixed.default_value.shape().dim(1).size(), 2);
  EXPECT_EQ(ParseAttr("f: func").type, "func");
  EXPECT_FALSE(ParseAttr("value: tensor").has_default);
}

TEST(OpSpecTest, ListsAndSetsOfAllowedValues) {
  OpAttr strides = ParseAttr("strides: list(int) >= 4 = [1, 2, 3, 4]");
  EXPECT_EQ(strides.type, "list(int)");
  EXPECT_EQ(strides.minimum, 4);
  EXPECT_THAT(strides.default_value.list().i(), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(ParseAttr("names: list(string) = []").default_value.has_list());
  EXPECT_THAT(ParseAttr("names: list(string) = ['a', 'b']").default_value.list().s(), ElementsAre("a", "b"));
  OpAttr types = ParseAttr("T: list({float, int32}) >= 1");
  EXPECT_EQ(types.type, "list(type)");
  EXPECT_THAT(types.allowed_types, ElementsAre(DType::kFloat, DType::kInt32));
  EXPECT_THAT(ParseAttr("mode: {'A', \"B\"} = 'A'").allowed_strings, ElementsAre("A", "B"));
  EXPECT_EQ(ParseAttr("T: numbertype").allowed_types.size(), 19u);
  EXPECT_EQ(ParseAttr("T: realnumbertype").allowed_types.size(), 12u);
  EXPECT_EQ(ParseAttr("T: quantizedtype").allowed_types.size(), 5u);
}

TEST(OpSpecTest, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {{"N", "expected 'name: type'"},
                                                       {"N: integer", "'integer' is not an attr type"},
                                                       {"N: int = x", "expected an integer"},
                                                       {"N: int = 3 4", "unexpected text at the end"},
                                                       {"T: {float, 'A'}", "either types or strings"},
                                                       {"N: int >= 4 = 3", "at least minimum 4"},
                                                       {"s: string = abc", "quoted string"},
                                                       {"T: {float} = DT_INT32", "not in the list of allowed values"},
                                                       {"b: bool >= 1", "has a minimum"},
                                                       {"l: list(int) = [1", "expected"}};
  for (const auto& [spec, why] : cases) {
    OpAttr attr;
    Status status = ParseAttrSpec(spec, &attr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << spec;
    EXPECT_THAT(std::string(status.message()), HasSubstr(spec));
  }
}

TEST(OpSpecTest, ArgsAreTiedToTheirAttrs) {
  const OpSchema* op = OpRegistry::Global().FindOrNull("TestStitch");
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->inputs[0].type, DType::kInt32);
  EXPECT_EQ(op->inputs[0].number_attr, "N");
  EXPECT_EQ(op->inputs[1].type_attr, "T");
  EXPECT_EQ(op->family, "graph");
  EXPECT_EQ(OpRegistry::Global().FindOrNull("TestTuple")->inputs[0].type_list_attr, "Tin");
  EXPECT_TRUE(OpRegistry::Global().FindOrNull("TestVariable")->outputs[0].is_ref);
  EXPECT_EQ(OpRegistry::Global().Find("Nonsense").status().code(), absl::StatusCode::kNotFound);
}

TEST(OpRegistryDeathTest, MalformedRegistrationEndsTheProcess) {
  EXPECT_DEATH(OpRegistration(OpSchemaBuilder("Bad", __FILE__).Input("x: Nothing")), "Registration of op Bad");
  EXPECT_DEATH(OpRegistration(OpSchemaBuilder("TestAdd", __FILE__)), "registered twice");
  EXPECT_DEATH(OpRegistration(OpSchemaBuilder("Bad", __FILE__).Attr("N: int").Attr("N: int")), "declared twice");
}

TEST(AttrTest, ValuesOfOtherKindsAreRefused) {
  EXPECT_EQ(*AttrAs<int64_t>(AttrInit(7).value()), 7);
  EXPECT_FALSE(AttrAs<int64_t>(AttrInit(7.0f).value()).ok());
  EXPECT_FALSE(AttrAs<int32_t>(AttrInit(int64_t{1} << 40).value()).ok());
  EXPECT_THAT(*AttrAs<std::vector<int64_t>>(AttrInit(std::vector<int>{1, 2}).value()), ElementsAre(1, 2));
  EXPECT_THAT(*AttrAs<std::vector<DType>>(AttrInit(std::vector<DType>{DType::kHalf}).value()),
              ElementsAre(DType::kHalf));
  EXPECT_EQ(AttrAs<Tensor>(AttrInit(Tensor::Of<float>({1, 2})).value())->num_elements(), 2);
  EXPECT_EQ(AttrToString(AttrInit(std::vector<bool>{true, false}).value()), "[true, false]");
  EXPECT_EQ(AttrToString(AttrInit("a\"b").value()), "\"a\\\"b\"");
  EXPECT_EQ(AttrToString(AttrInit(DType::kFloat).value()), "float");
}

TEST(AttrTest, ListsMustHoldTheDeclaredKindOnly) {
  OpAttr declared = ParseAttr("l: list(int) >= 1");
  EXPECT_TRUE(CheckAttr(declared, AttrInit(std::vector<int>{1}).value()).ok());
  EXPECT_FALSE(CheckAttr(declared, AttrInit(std::vector<int>{}).value()).ok());
  EXPECT_FALSE(CheckAttr(declared, AttrInit(std::vector<float>{1.0f}).value()).ok());
  EXPECT_FALSE(CheckAttr(declared, AttrInit(1).value()).ok());
  EXPECT_FALSE(CheckAttr(ParseAttr("T: type"), AttrInit(DType::kInvalid).value()).ok());
  EXPECT_FALSE(CheckAttr(ParseAttr("T: type"), AttrInit(static_cast<DType>(999)).value()).ok());
  EXPECT_FALSE(CheckAttr(ParseAttr("T: type"), AttrInit(RefType(DType::kFloat)).value()).ok());
}

}  // namespace
}  // namespace millrace
