#include "millrace/graph/op_spec_parser.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// A cursor over a spec; a failed read does not advance it.
class Cursor {
 public:
  explicit Cursor(absl::string_view text) : rest_(text) {}

  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }
  bool Eat(absl::string_view token) {
    SkipSpace();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool Peek(char c) {
    SkipSpace();
    return !rest_.empty() && rest_[0] == c;
  }
  bool Identifier(absl::string_view* out) {
    SkipSpace();
    size_t n = 0;
    while (n < rest_.size() && (IsLetter(rest_[n]) || (n > 0 && IsDigit(rest_[n])))) ++n;
    return Take(n, out);
  }
  bool Number(absl::string_view* out) {
    SkipSpace();
    size_t n = 0;
    while (n < rest_.size() &&
           (IsDigit(rest_[n]) || IsLetter(rest_[n]) || rest_[n] == '.' || rest_[n] == '-' || rest_[n] == '+')) {
      ++n;
    }
    return Take(n, out);
  }
  bool Quoted(std::string* out) {
    SkipSpace();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return false;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == absl::string_view::npos) return false;
    out->assign(rest_.data() + 1, end - 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

 private:
  static bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  void SkipSpace() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t')) {
      rest_.remove_prefix(1);
    }
  }
  bool Take(size_t n, absl::string_view* out) {
    if (n == 0) return false;
    *out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return true;
  }

  absl::string_view rest_;
};

// Named sets of types.
bool NamedTypeSet(absl::string_view name, std::vector<DType>* types) {
  static constexpr DType kReal[] = {DType::kFloat,  DType::kDouble, DType::kInt32,  DType::kUInt8,
                                    DType::kInt16,  DType::kInt8,   DType::kInt64,  DType::kBFloat16,
                                    DType::kUInt16, DType::kHalf,   DType::kUInt32, DType::kUInt64};
  static constexpr DType kQuantized[] = {DType::kQInt8, DType::kQUInt8, DType::kQInt32, DType::kQInt16,
                                         DType::kQUInt16};
  if (name == "quantizedtype") {
    types->assign(std::begin(kQuantized), std::end(kQuantized));
    return true;
  }
  if (name != "numbertype" && name != "realnumbertype") return false;
  types->assign(std::begin(kReal), std::end(kReal));
  if (name == "numbertype") {
    types->insert(types->end(), {DType::kComplex64, DType::kComplex128});
    types->insert(types->end(), std::begin(kQuantized), std::end(kQuantized));
  }
  return true;
}

// "{float, int32}" or "{'A', 'B'}" after the opening brace.
Status ParseAllowed(Cursor& in, OpAttr* attr, std::string* kind) {
  do {
    std::string text;
    absl::string_view name;
    if (in.Quoted(&text)) {
      attr->allowed_strings.push_back(std::move(text));
    } else if (in.Identifier(&name)) {
      std::vector<DType> set;
      if (!NamedTypeSet(name, &set)) {
        MR_ASSIGN_OR_RETURN(DType type, ParseDType(name));
        set = {type};
      }
      attr->allowed_types.insert(attr->allowed_types.end(), set.begin(), set.end());
    } else if (!in.Peek('}')) {
      return InvalidArgument("expected a type or a quoted string in braces");
    }
  } while (in.Eat(","));
  if (!in.Eat("}")) return InvalidArgument("expected '}'");
  if (attr->allowed_types.empty() == attr->allowed_strings.empty()) {
    return InvalidArgument("braces hold either types or strings");
  }
  *kind = attr->allowed_types.empty() ? "string" : "type";
  return absl::OkStatus();
}

// The kind of a non-list attr.
Status ParseKind(Cursor& in, OpAttr* attr, std::string* kind) {
  if (in.Eat("{")) return ParseAllowed(in, attr, kind);
  absl::string_view name;
  if (!in.Identifier(&name)) return InvalidArgument("expected the attr's type");
  if (NamedTypeSet(name, &attr->allowed_types)) {
    *kind = "type";
    return absl::OkStatus();
  }
  static constexpr absl::string_view kKinds[] = {"string", "int",    "float", "bool",       "type",
                                                 "shape",  "tensor", "func",  "placeholder"};
  if (std::find(std::begin(kKinds), std::end(kKinds), name) == std::end(kKinds)) {
    return InvalidArgument("'", name, "' is not an attr type");
  }
  *kind = std::string(name);
  return absl::OkStatus();
}

Status ParseInt(Cursor& in, int64_t* value) {
  absl::string_view text;
  if (!in.Number(&text) || !absl::SimpleAtoi(text, value)) return InvalidArgument("expected an integer");
  return absl::OkStatus();
}

// "{ unknown_rank: true }", "{ dim { size: 2 } }" or "[2, 3]".
Status ParseShape(Cursor& in, pb::TensorShapeProto* shape) {
  int64_t size;
  if (in.Eat("[")) {
    while (!in.Eat("]")) {
      MR_RETURN_IF_ERROR(ParseInt(in, &size));
      shape->add_dim()->set_size(size);
      in.Eat(",");
    }
    return absl::OkStatus();
  }
  if (!in.Eat("{")) return InvalidArgument("expected a shape");
  while (!in.Eat("}")) {
    if (in.Eat("unknown_rank:") && in.Eat("true")) {
      shape->set_unknown_rank(true);
    } else if (in.Eat("dim") && in.Eat("{") && in.Eat("size:")) {
      MR_RETURN_IF_ERROR(ParseInt(in, &size));
      shape->add_dim()->set_size(size);
      if (!in.Eat("}")) return InvalidArgument("expected '}' after a dimension");
    } else {
      return InvalidArgument("expected unknown_rank or dim in a shape");
    }
  }
  return absl::OkStatus();
}

// "{ dtype: DT_UINT8 }": an empty default tensor.
Status ParseTensor(Cursor& in, pb::TensorProto* tensor) {
  absl::string_view name;
  if (!in.Eat("{") || !in.Eat("dtype:") || !in.Identifier(&name)) {
    return InvalidArgument("expected { dtype: ... }");
  }
  MR_ASSIGN_OR_RETURN(DType type, ParseDType(name));
  tensor->set_dtype(static_cast<pb::DataType>(type));
  tensor->mutable_tensor_shape();
  if (!in.Eat("}")) return InvalidArgument("expected '}' after the tensor's type");
  return absl::OkStatus();
}

// Parses one value of the given kind into `value`; for a list, the caller copies it from there.
Status ParseScalarValue(Cursor& in, absl::string_view kind, pb::AttrValue* value) {
  absl::string_view text;
  if (kind == "string") {
    if (!in.Quoted(value->mutable_s())) return InvalidArgument("expected a quoted string");
  } else if (kind == "int") {
    int64_t i;
    MR_RETURN_IF_ERROR(ParseInt(in, &i));
    value->set_i(i);
  } else if (kind == "float") {
    float f;
    if (!in.Number(&text) || !absl::SimpleAtof(text, &f)) return InvalidArgument("expected a number");
    value->set_f(f);
  } else if (kind == "bool") {
    if (!in.Identifier(&text) || (text != "true" && text != "false")) {
      return InvalidArgument("expected true or false");
    }
    value->set_b(text == "true");
  } else if (kind == "type") {
    if (!in.Identifier(&text)) return InvalidArgument("expected a type");
    MR_ASSIGN_OR_RETURN(DType type, ParseDType(text));
    value->set_type(static_cast<pb::DataType>(type));
  } else if (kind == "shape") {
    return ParseShape(in, value->mutable_shape());
  } else if (kind == "tensor") {
    return ParseTensor(in, value->mutable_tensor());
  } else {
    return InvalidArgument("attrs of type ", kind, " take no default");
  }
  return absl::OkStatus();
}

void AppendToList(const pb::AttrValue& item, pb::AttrValue::ListValue* list) {
  switch (item.value_case()) {
    case pb::AttrValue::kS:
      list->add_s(item.s());
      break;
    case pb::AttrValue::kI:
      list->add_i(item.i());
      break;
    case pb::AttrValue::kF:
      list->add_f(item.f());
      break;
    case pb::AttrValue::kB:
      list->add_b(item.b());
      break;
    case pb::AttrValue::kType:
      list->add_type(item.type());
      break;
    case pb::AttrValue::kShape:
      *list->add_shape() = item.shape();
      break;
    case pb::AttrValue::kTensor:
      *list->add_tensor() = item.tensor();
      break;
    default:
      break;
  }
}

Status ParseDefault(Cursor& in, absl::string_view kind, bool is_list, pb::AttrValue* value) {
  if (!is_list) return ParseScalarValue(in, kind, value);
  if (!in.Eat("[")) return InvalidArgument("expected '[' before the default of a list");
  value->mutable_list();
  while (!in.Eat("]")) {
    pb::AttrValue item;
    MR_RETURN_IF_ERROR(ParseScalarValue(in, kind, &item));
    AppendToList(item, value->mutable_list());
    if (!in.Eat(",") && !in.Peek(']')) return InvalidArgument("expected ',' or ']' in a list");
  }
  return absl::OkStatus();
}

Status ParseAttr(Cursor& in, OpAttr* attr) {
  absl::string_view name;
  if (!in.Identifier(&name) || !in.Eat(":")) return InvalidArgument("expected 'name: type'");
  attr->name = std::string(name);
  std::string kind;
  const bool is_list = in.Eat("list(");
  MR_RETURN_IF_ERROR(ParseKind(in, attr, &kind));
  if (is_list && !in.Eat(")")) return InvalidArgument("expected ')' after the list's type");
  attr->type = is_list ? absl::StrCat("list(", kind, ")") : kind;
  if (in.Eat(">=")) {
    if (!is_list && kind != "int") return InvalidArgument("only an int or a list has a minimum");
    MR_RETURN_IF_ERROR(ParseInt(in, &attr->minimum));
    attr->has_minimum = true;
  }
  if (in.Eat("=")) {
    MR_RETURN_IF_ERROR(ParseDefault(in, kind, is_list, &attr->default_value));
    attr->has_default = true;
    MR_RETURN_IF_ERROR(CheckAttr(*attr, attr->default_value));
  }
  if (!in.AtEnd()) return InvalidArgument("unexpected text at the end");
  return absl::OkStatus();
}

Status ParseArg(Cursor& in, OpArg* arg) {
  absl::string_view name, type;
  if (!in.Identifier(&name) || !in.Eat(":")) return InvalidArgument("expected 'name: type'");
  arg->name = std::string(name);
  arg->is_ref = in.Eat("Ref(");
  if (!in.Identifier(&type)) return InvalidArgument("expected a type or the name of an attr");
  if (in.Eat("*")) {
    arg->number_attr = std::string(type);
    if (!arg->is_ref && in.Eat("Ref(")) {  // N * Ref(T)
      arg->is_ref = true;
    }
    if (!in.Identifier(&type)) return InvalidArgument("expected a type after '*'");
  }
  if (arg->is_ref && !in.Eat(")")) return InvalidArgument("expected ')' after Ref(");
  arg->type_attr = std::string(type);
  if (!in.AtEnd()) return InvalidArgument("unexpected text at the end");
  return absl::OkStatus();
}

}  // namespace

Status ParseArgSpec(absl::string_view spec, OpArg* arg) {
  Cursor in(spec);
  return WithPrefix(absl::StrCat("\"", spec, "\": "), ParseArg(in, arg));
}

Status ParseAttrSpec(absl::string_view spec, OpAttr* attr) {
  Cursor in(spec);
  return WithPrefix(absl::StrCat("\"", spec, "\": "), ParseAttr(in, attr));
}

Status ResolveArg(const OpSchema& schema, OpArg* arg) {
  if (!arg->number_attr.empty()) {
    const OpAttr* number = schema.FindAttr(arg->number_attr);
    if (number == nullptr || number->type != "int") {
      return InvalidArgument("argument '", arg->name, "': '", arg->number_attr, "' is not an int attr");
    }
  }
  const OpAttr* attr = schema.FindAttr(arg->type_attr);
  if (attr == nullptr) {
    MR_ASSIGN_OR_RETURN(arg->type, ParseDType(arg->type_attr));
    arg->type_attr.clear();
    return absl::OkStatus();
  }
  if (attr->type == "type") return absl::OkStatus();
  if (attr->type == "list(type)" && arg->number_attr.empty()) {
    arg->type_list_attr = std::move(arg->type_attr);
    arg->type_attr.clear();
    return absl::OkStatus();
  }
  return InvalidArgument("argument '", arg->name, "': attr '", attr->name, "' is of type ", attr->type,
                         ", which does not determine a tensor type");
}

}  // namespace millrace
