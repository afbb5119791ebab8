// Walks the registry: a new op is covered by being registered.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/op_schema.h"
#include "millrace/runtime/kernel_registry.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

std::string ReadGzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string text;
  char block[1 << 16];
  int n = 0;
  while (file != nullptr && (n = gzread(file, block, sizeof(block))) > 0) text.append(block, n);
  if (file != nullptr) gzclose(file);
  return text;
}

// TensorFlow's op definitions, by name.
const std::map<std::string, Json>& Facts() {
  static const auto* const facts = [] {
    auto* map = new std::map<std::string, Json>;
    for (Json& op : Json::parse(ReadGzip(MILLRACE_TESTDATA "/ops.json.gz"))) {
      const std::string name = op["name"];
      map->emplace(name, std::move(op));
    }
    return map;
  }();
  return *facts;
}

// tests/registry_exceptions/FAMILY.txt: "CHECK OP reason" for intended exceptions.
const std::map<std::string, std::set<std::string>>& Exceptions() {
  static const auto* const exceptions = [] {
    auto* map = new std::map<std::string, std::set<std::string>>;
    for (const auto& file : std::filesystem::directory_iterator(MILLRACE_TESTDATA "/../tests/registry_exceptions")) {
      if (file.path().extension() != ".txt") continue;
      std::ifstream in(file.path());
      std::string line, check, op, reason;
      while (std::getline(in, line)) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream words(line);
        words >> check >> op;
        std::getline(words >> std::ws, reason);
        EXPECT_FALSE(reason.empty()) << "no reason given: " << line;
        (*map)[check].insert(op);
      }
    }
    return map;
  }();
  return *exceptions;
}

bool IsExcepted(const std::string& check, const std::string& op) {
  const auto at = Exceptions().find(check);
  return at != Exceptions().end() && at->second.count(op) > 0;
}

// Ops of Millrace's own start with an underscore or with "Millrace".
bool IsOwn(const std::string& op) { return op[0] == '_' || op.rfind("Millrace", 0) == 0; }

std::string ArgText(const OpArg& arg) {
  return absl::StrCat(arg.name, ": ", arg.is_ref ? "ref " : "",
                      arg.number_attr.empty() ? "" : absl::StrCat(arg.number_attr, " * "), arg.type_attr,
                      arg.type_list_attr, arg.type == DType::kInvalid ? "" : DTypeName(arg.type));
}

std::string ArgText(const Json& arg) {
  OpArg a;
  a.name = arg.at("name");
  a.is_ref = arg.value("is_ref", false);
  a.number_attr = arg.value("number_attr", "");
  a.type_attr = arg.value("type_attr", "");
  a.type_list_attr = arg.value("type_list_attr", "");
  if (arg.contains("type")) {
    const StatusOr<DType> type = ParseDType(arg.at("type").get<std::string>());
    a.type = type.ok() ? *type : DType::kInvalid;
  }
  return ArgText(a);
}

// Types that this library has no number for (TensorFlow's newest) are left out of comparisons.
std::set<std::string> KnownTypes(const Json& names) {
  std::set<std::string> types;
  for (const Json& name : names) {
    const StatusOr<DType> type = ParseDType(name.get<std::string>());
    if (type.ok()) types.insert(DTypeName(*type));
  }
  return types;
}

Json ShapeAsJson(const pb::TensorShapeProto& shape) {
  if (shape.unknown_rank()) return Json{{"unknown_rank", true}};
  Json dims = Json::array();
  for (const auto& dim : shape.dim()) dims.push_back(dim.size());
  return dims;
}

Json TypeAsJson(int type) { return DTypeName(static_cast<DType>(type)); }

Json ListAsJson(const pb::AttrValue::ListValue& list) {
  Json values = Json::array();
  for (const auto& v : list.s()) values.push_back(v);
  for (const auto v : list.i()) values.push_back(v);
  for (const auto v : list.f()) values.push_back(v);
  for (const auto v : list.b()) values.push_back(v);
  for (const auto v : list.type()) values.push_back(TypeAsJson(v));
  for (const auto& v : list.shape()) values.push_back(ShapeAsJson(v));
  return values;
}

// Types by the names of this library, so that both sides are spelt alike.
Json WithTypeNames(const std::string& attr_type, const Json& value) {
  if (attr_type == "type") return DTypeName(ParseDType(value.get<std::string>()).value_or(DType::kInvalid));
  if (attr_type != "list(type)") return value;
  Json names = Json::array();
  for (const Json& v : value) names.push_back(WithTypeNames("type", v));
  return names;
}

// Null for kinds that have no simple form (tensors, functions).
Json DefaultAsJson(const OpAttr& attr) {
  const pb::AttrValue& v = attr.default_value;
  switch (v.value_case()) {
    case pb::AttrValue::kS:
      return v.s();
    case pb::AttrValue::kI:
      return v.i();
    case pb::AttrValue::kF:
      return v.f();
    case pb::AttrValue::kB:
      return v.b();
    case pb::AttrValue::kType:
      return TypeAsJson(v.type());
    case pb::AttrValue::kShape:
      return ShapeAsJson(v.shape());
    case pb::AttrValue::kList:
      return ListAsJson(v.list());
    default:
      return nullptr;
  }
}

void ExpectSameAttr(const OpAttr& attr, const Json& fact) {
  SCOPED_TRACE("attr " + attr.name);
  EXPECT_EQ(attr.type, fact.at("type").get<std::string>());
  EXPECT_EQ(attr.has_default, fact.contains("default"));
  if (attr.has_default && fact.contains("default") && attr.type != "tensor" && attr.type != "func") {
    const Json want = WithTypeNames(attr.type, fact.at("default"));
    if (attr.type == "float") {
      EXPECT_FLOAT_EQ(attr.default_value.f(), want.get<float>());
    } else {
      EXPECT_EQ(DefaultAsJson(attr), want);
    }
  }
  EXPECT_EQ(attr.has_minimum ? attr.minimum : -1, fact.value("minimum", int64_t{-1}));
  const Json allowed = fact.value("allowed", Json::array());
  if (attr.type == "type" || attr.type == "list(type)") {
    std::set<std::string> got;
    for (DType type : attr.allowed_types) got.insert(DTypeName(type));
    EXPECT_EQ(got, KnownTypes(allowed));
  } else {
    EXPECT_EQ(std::set<std::string>(attr.allowed_strings.begin(), attr.allowed_strings.end()),
              allowed.get<std::set<std::string>>());
  }
}

template <typename Args>
std::vector<std::string> Texts(const Args& args) {
  std::vector<std::string> texts;
  for (const auto& arg : args) texts.push_back(ArgText(arg));
  return texts;
}

TEST(Registry, IsNotEmpty) { EXPECT_GE(OpRegistry::Global().All().size(), 100); }

TEST(Registry, EveryOpAgreesWithTensorFlowsSchema) {
  ASSERT_GT(Facts().size(), 800);
  for (const OpSchema* op : OpRegistry::Global().All()) {
    SCOPED_TRACE(op->name);
    const auto at = Facts().find(op->name);
    if (at == Facts().end()) {
      EXPECT_TRUE(IsOwn(op->name))
          << "TensorFlow's facts have no such op, and it is not named as one of Millrace's own";
      continue;
    }
    const Json& fact = at->second;
    EXPECT_EQ(Texts(op->inputs), Texts(fact.at("inputs")));
    EXPECT_EQ(Texts(op->outputs), Texts(fact.at("outputs")));
    EXPECT_EQ(op->is_stateful, fact.value("is_stateful", false));
    EXPECT_EQ(op->is_commutative, fact.value("is_commutative", false));
    EXPECT_EQ(op->allows_uninitialized_input, fact.value("allows_uninitialized_input", false));
    EXPECT_EQ(op->attrs.size(), fact.at("attrs").size());
    for (const Json& attr : fact.at("attrs")) {
      const OpAttr* mine = op->FindAttr(attr.at("name").get<std::string>());
      ASSERT_NE(mine, nullptr) << "lacks attr " << attr.at("name");
      ExpectSameAttr(*mine, attr);
    }
  }
}

TEST(Registry, EveryOpHasAShapeFunction) {
  for (const OpSchema* op : OpRegistry::Global().All()) {
    EXPECT_TRUE(op->shape_fn != nullptr || IsExcepted("shape", op->name)) << op->name;
  }
}

TEST(Registry, EveryOpHasACpuKernel) {
  for (const OpSchema* op : OpRegistry::Global().All()) {
    EXPECT_TRUE(KernelRegistry::Global().Has(op->name, "CPU") || IsExcepted("kernel", op->name)) << op->name;
  }
}

// Whether a floating value can pass through `args`.
bool MayBeFloating(const OpSchema& op, const std::vector<OpArg>& args) {
  return std::any_of(args.begin(), args.end(), [&](const OpArg& arg) {
    if (arg.type != DType::kInvalid) return IsFloating(arg.type) || IsComplex(arg.type);
    const OpAttr* attr = op.FindAttr(arg.type_attr.empty() ? arg.type_list_attr : arg.type_attr);
    if (attr == nullptr || attr->allowed_types.empty()) return true;
    return std::any_of(attr->allowed_types.begin(), attr->allowed_types.end(),
                       [](DType t) { return IsFloating(t) || IsComplex(t); });
  });
}

TEST(Registry, EveryDifferentiableOpHasAGradient) {
  for (const OpSchema* op : OpRegistry::Global().All()) {
    if (!MayBeFloating(*op, op->inputs) || !MayBeFloating(*op, op->outputs)) continue;
    EXPECT_TRUE(op->gradient_fn != nullptr || op->not_differentiable || IsExcepted("gradient", op->name))
        << op->name << " has neither a gradient nor .NotDifferentiable() nor a line in registry_exceptions/";
  }
}

TEST(Registry, NoOpIsBothDifferentiableAndNot) {
  for (const OpSchema* op : OpRegistry::Global().All()) {
    EXPECT_FALSE(op->gradient_fn != nullptr && op->not_differentiable) << op->name;
  }
}

// What a pass may leave out, merge or wait for depends on these, so they may not contradict one another.
TEST(Registry, TraitsAgreeWithTheSchema) {
  for (const OpSchema* op : OpRegistry::Global().All()) {
    SCOPED_TRACE(op->name);
    const bool pure = op->Has(OpTrait::kElementwise) || op->Has(OpTrait::kRowReduction) ||
                      op->Has(OpTrait::kActivation) || op->Has(OpTrait::kShapeOf);
    EXPECT_FALSE(pure && op->is_stateful);
    EXPECT_TRUE(!op->Has(OpTrait::kElementwise) || op->outputs.size() == 1);
    EXPECT_FALSE(op->Has(OpTrait::kReadsVariable) && op->Has(OpTrait::kUpdatesVariable));
    EXPECT_FALSE(op->Has(OpTrait::kRandom) && !op->is_stateful);
    if (op->ints_fn == nullptr) continue;
    const auto may_be_int = [&](const OpArg& out) {
      if (out.type != DType::kInvalid) return IsInteger(out.type);
      const OpAttr* attr = op->FindAttr(out.type_attr);
      return attr->allowed_types.empty() ||
             std::any_of(attr->allowed_types.begin(), attr->allowed_types.end(), IsInteger);
    };
    EXPECT_TRUE(std::any_of(op->outputs.begin(), op->outputs.end(), may_be_int));
  }
}

std::set<std::string> OpsWithCases() {
  std::set<std::string> ops;
  for (const char* index : {"/golden/index.jsonl", "/golden/datasets.jsonl", "/gradients/index.jsonl",
                            "/relatives/index.jsonl", "/wider/index.jsonl"}) {
    std::ifstream in(std::string(MILLRACE_TESTDATA) + index);
    std::string line;
    while (std::getline(in, line)) {
      const Json entry = Json::parse(line);
      for (const Json& op : entry.at("ops")) ops.insert(op.get<std::string>());
    }
  }
  return ops;
}

TEST(Registry, EveryOpHasAGoldenCase) {
  const std::set<std::string> covered = OpsWithCases();
  ASSERT_GT(covered.size(), 300);
  for (const OpSchema* op : OpRegistry::Global().All()) {
    EXPECT_TRUE(covered.count(op->name) > 0 || IsExcepted("golden", op->name)) << op->name;
  }
}

TEST(Registry, ExceptionsNameOpsThatNeedThem) {
  const std::set<std::string> covered = OpsWithCases();
  for (const auto& [check, ops] : Exceptions()) {
    EXPECT_THAT(check, ::testing::AnyOf("shape", "kernel", "gradient", "golden"));
    for (const std::string& name : ops) {
      const OpSchema* op = OpRegistry::Global().FindOrNull(name);
      if (op == nullptr) {
        ADD_FAILURE() << name << " is excepted from " << check << " but not registered";
        continue;
      }
      const bool needed = check == "shape"      ? op->shape_fn == nullptr
                          : check == "kernel"   ? !KernelRegistry::Global().Has(name, "CPU")
                          : check == "gradient" ? op->gradient_fn == nullptr && !op->not_differentiable
                                                : covered.count(name) == 0;
      EXPECT_TRUE(needed) << name << " no longer needs its exception from " << check;
    }
  }
}

}  // namespace
}  // namespace millrace
