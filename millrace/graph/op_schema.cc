#include "millrace/graph/op_schema.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "millrace/graph/attr.h"
#include "millrace/graph/op_spec_parser.h"

namespace millrace {
namespace {

// The kind of a non-list value as named in attr specs; null if none.
const char* KindOf(pb::AttrValue::ValueCase value) {
  switch (value) {
    case pb::AttrValue::kS:
      return "string";
    case pb::AttrValue::kI:
      return "int";
    case pb::AttrValue::kF:
      return "float";
    case pb::AttrValue::kB:
      return "bool";
    case pb::AttrValue::kType:
      return "type";
    case pb::AttrValue::kShape:
      return "shape";
    case pb::AttrValue::kTensor:
      return "tensor";
    case pb::AttrValue::kFunc:
      return "func";
    default:
      return nullptr;
  }
}

// The number of items of the given kind, or -1 if the list has items of another kind.
int64_t ListSize(const pb::AttrValue::ListValue& list, absl::string_view kind) {
  const struct {
    absl::string_view kind;
    int size;
  } sizes[] = {{"string", list.s_size()},      {"int", list.i_size()},     {"float", list.f_size()},
               {"bool", list.b_size()},        {"type", list.type_size()}, {"shape", list.shape_size()},
               {"tensor", list.tensor_size()}, {"func", list.func_size()}};
  int64_t wanted = 0;
  for (const auto& s : sizes) {
    if (s.kind == kind) {
      wanted = s.size;
    } else if (s.size != 0) {
      return -1;
    }
  }
  return wanted;
}

Status CheckType(const OpAttr& attr, int number) {
  if (number == 0 || number > kRefOffset || !pb::DataType_IsValid(number)) {
    return InvalidArgument("Value for attr '", attr.name, "' is not an element type (number ", number, ")");
  }
  const DType type = static_cast<DType>(number);
  if (!attr.allowed_types.empty() &&
      std::find(attr.allowed_types.begin(), attr.allowed_types.end(), type) == attr.allowed_types.end()) {
    return InvalidArgument(
        "Value for attr '", attr.name, "' of ", DTypeName(type), " is not in the list of allowed values: ",
        absl::StrJoin(attr.allowed_types, ", ", [](std::string* out, DType t) { absl::StrAppend(out, DTypeName(t)); }));
  }
  return absl::OkStatus();
}

Status CheckString(const OpAttr& attr, const std::string& value) {
  if (!attr.allowed_strings.empty() &&
      std::find(attr.allowed_strings.begin(), attr.allowed_strings.end(), value) == attr.allowed_strings.end()) {
    return InvalidArgument("Value for attr '", attr.name, "' of \"", value,
                           "\" is not in the list of allowed values: \"", absl::StrJoin(attr.allowed_strings, "\", \""),
                           "\"");
  }
  return absl::OkStatus();
}

Status CheckList(const OpAttr& attr, absl::string_view kind, const pb::AttrValue::ListValue& list) {
  const int64_t size = ListSize(list, kind);
  if (size < 0) return InvalidArgument("attr '", attr.name, "' takes a ", attr.type);
  if (attr.has_minimum && size < attr.minimum) {
    return InvalidArgument("Length for attr '", attr.name, "' of ", size, " must be at least minimum ", attr.minimum);
  }
  for (int type : list.type()) MR_RETURN_IF_ERROR(CheckType(attr, type));
  for (const std::string& s : list.s()) MR_RETURN_IF_ERROR(CheckString(attr, s));
  return absl::OkStatus();
}

// ".../ops/math/matmul.cc" -> "math".
std::string FolderOf(absl::string_view file) {
  const size_t slash = file.rfind('/');
  if (slash == absl::string_view::npos) return "";
  absl::string_view folder = file.substr(0, slash);
  const size_t before = folder.rfind('/');
  return std::string(before == absl::string_view::npos ? folder : folder.substr(before + 1));
}

}  // namespace

const OpAttr* OpSchema::FindAttr(absl::string_view attr_name) const {
  for (const OpAttr& attr : attrs) {
    if (attr.name == attr_name) return &attr;
  }
  return nullptr;
}

Status CheckAttr(const OpAttr& attr, const pb::AttrValue& value) {
  absl::string_view type = attr.type;
  if (absl::StartsWith(type, "list(")) {
    if (!value.has_list()) return InvalidArgument("attr '", attr.name, "' takes a ", type);
    return CheckList(attr, type.substr(5, type.size() - 6), value.list());
  }
  const char* kind = KindOf(value.value_case());
  if (kind == nullptr || type != kind) {
    return InvalidArgument("attr '", attr.name, "' takes a ", type, ", not ",
                           value.has_list()  ? "a list"
                           : kind == nullptr ? "nothing"
                                             : kind);
  }
  if (value.value_case() == pb::AttrValue::kI && attr.has_minimum && value.i() < attr.minimum) {
    return InvalidArgument("Value for attr '", attr.name, "' of ", value.i(), " must be at least minimum ",
                           attr.minimum);
  }
  if (value.value_case() == pb::AttrValue::kType) return CheckType(attr, value.type());
  if (value.value_case() == pb::AttrValue::kS) return CheckString(attr, value.s());
  return absl::OkStatus();
}

OpRegistry& OpRegistry::Global() {
  // Never destroyed: graphs of static lifetime may outlive any order of destruction.
  static OpRegistry& registry = *new OpRegistry();
  return registry;
}

const OpSchema* OpRegistry::FindOrNull(absl::string_view name) const {
  auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : it->second.get();
}

StatusOr<const OpSchema*> OpRegistry::Find(absl::string_view name) const {
  const OpSchema* schema = FindOrNull(name);
  if (schema == nullptr) return NotFound("Op type not registered '", name, "'");
  return schema;
}

std::vector<const OpSchema*> OpRegistry::All() const {
  std::vector<const OpSchema*> all;
  all.reserve(ops_.size());
  for (const auto& [name, schema] : ops_) all.push_back(schema.get());
  std::sort(all.begin(), all.end(), [](const OpSchema* a, const OpSchema* b) { return a->name < b->name; });
  return all;
}

void OpRegistry::Register(OpSchema schema) {
  Status status;
  for (auto* args : {&schema.inputs, &schema.outputs}) {
    for (OpArg& arg : *args) {
      // The arguments of a schema that is registered again are already resolved.
      if (status.ok() && arg.type == DType::kInvalid && arg.type_list_attr.empty()) {
        status = ResolveArg(schema, &arg);
      }
    }
  }
  for (size_t i = 0; i < schema.attrs.size(); ++i) {
    if (schema.FindAttr(schema.attrs[i].name) != &schema.attrs[i]) {
      status = InvalidArgument("attr '", schema.attrs[i].name, "' is declared twice");
    }
  }
  if (status.ok() && ops_.contains(schema.name)) status = InvalidArgument("registered twice");
  if (!status.ok()) {
    std::fprintf(stderr, "Registration of op %s: %s\n", schema.name.c_str(), std::string(status.message()).c_str());
    std::abort();
  }
  std::string name = schema.name;
  ops_.emplace(std::move(name), std::make_unique<OpSchema>(std::move(schema)));
}

OpSchemaBuilder::OpSchemaBuilder(absl::string_view name, absl::string_view file) {
  schema_.name = std::string(name);
  schema_.family = FolderOf(file);
}

OpSchemaBuilder& OpSchemaBuilder::Input(absl::string_view spec) {
  OpArg arg;
  status_.Update(ParseArgSpec(spec, &arg));
  schema_.inputs.push_back(std::move(arg));
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Output(absl::string_view spec) {
  OpArg arg;
  status_.Update(ParseArgSpec(spec, &arg));
  schema_.outputs.push_back(std::move(arg));
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Attr(absl::string_view spec) {
  OpAttr attr;
  status_.Update(ParseAttrSpec(spec, &attr));
  schema_.attrs.push_back(std::move(attr));
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Stateful() {
  schema_.is_stateful = true;
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Commutative() {
  schema_.is_commutative = true;
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::AllowsUninitializedInput() {
  schema_.allows_uninitialized_input = true;
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Control(ControlKind kind) {
  schema_.control_kind = kind;
  return *this;
}
OpSchemaBuilder& OpSchemaBuilder::Call(CallKind kind) {
  schema_.call_kind = kind;
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Trait(OpTrait trait) {
  schema_.traits |= 1u << static_cast<uint8_t>(trait);
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Shape(ShapeFn fn) {
  schema_.shape_fn = fn;
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Ints(IntsFn fn) {
  schema_.ints_fn = fn;
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Gradient(GradientFn fn) {
  schema_.gradient_fn = fn;
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::NotDifferentiable() {
  schema_.not_differentiable = true;
  return *this;
}

OpSchemaBuilder& OpSchemaBuilder::Summary(absl::string_view text) {
  schema_.summary = std::string(text);
  return *this;
}

OpRegistration::OpRegistration(const OpSchemaBuilder& builder) {
  if (!builder.status().ok()) {
    std::fprintf(stderr, "Registration of op %s: %s\n", builder.schema().name.c_str(),
                 std::string(builder.status().message()).c_str());
    std::abort();
  }
  OpRegistry::Global().Register(builder.schema());
}

}  // namespace millrace
