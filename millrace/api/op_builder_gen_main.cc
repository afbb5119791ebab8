// Generates the typed op builders: a header and a source file per family of ops, from the schemas that are linked into
// this program.
//
//   op_builder_gen OUT_DIR FAMILY...
//
// A file whose contents would not change is not written, so that nothing is recompiled.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "millrace/graph/op_schema.h"

namespace millrace {
namespace {

// Written by hand in api/const_op.h.
bool IsHandWritten(const OpSchema& op) { return op.name == "Const"; }
// Ops that only passes and the runtime add.
bool IsInternal(const OpSchema& op) { return absl::StartsWith(op.name, "_"); }

bool IsReserved(absl::string_view name) {
  static const std::set<absl::string_view>* const words = new std::set<absl::string_view>{
      "alignas",  "alignof", "and",      "asm",       "auto",     "bool",     "break",     "case",     "catch",
      "char",     "class",   "const",    "continue",  "decltype", "default",  "delete",    "do",       "double",
      "else",     "enum",    "explicit", "export",    "extern",   "false",    "float",     "for",      "friend",
      "goto",     "if",      "inline",   "int",       "long",     "mutable",  "namespace", "new",      "not",
      "operator", "or",      "private",  "protected", "public",   "register", "return",    "requires", "short",
      "signed",   "sizeof",  "static",   "struct",    "switch",   "template", "this",      "throw",    "true",
      "try",      "typedef", "typeid",   "typename",  "union",    "unsigned", "using",     "virtual",  "void",
      "volatile", "while",   "xor",      "scope",     "attrs",    "op"};
  return words->contains(name);
}
std::string Identifier(const std::string& name) { return IsReserved(name) ? name + "_" : name; }

// The C++ type of an attr.
std::string CppType(const OpAttr& attr) {
  static const std::map<std::string, std::string>* const types =
      new std::map<std::string, std::string>{{"bool", "bool"},
                                             {"int", "int64_t"},
                                             {"float", "float"},
                                             {"string", "std::string"},
                                             {"type", "DType"},
                                             {"shape", "PartialShape"},
                                             {"tensor", "Tensor"},
                                             {"func", "pb::NameAttrList"},
                                             {"list(bool)", "std::vector<bool>"},
                                             {"list(int)", "std::vector<int64_t>"},
                                             {"list(float)", "std::vector<float>"},
                                             {"list(string)", "std::vector<std::string>"},
                                             {"list(type)", "std::vector<DType>"},
                                             {"list(shape)", "std::vector<PartialShape>"}};
  auto it = types->find(attr.type);
  return it == types->end() ? "pb::AttrValue" : it->second;
}

std::string Quoted(const std::string& text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

std::string TypeName(int type) {
  static const std::map<int, std::string>* const names = new std::map<int, std::string>{
      {1, "kFloat"},       {2, "kDouble"},    {3, "kInt32"},     {4, "kUInt8"},    {5, "kInt16"},     {6, "kInt8"},
      {7, "kString"},      {8, "kComplex64"}, {9, "kInt64"},     {10, "kBool"},    {14, "kBFloat16"}, {17, "kUInt16"},
      {18, "kComplex128"}, {19, "kHalf"},     {20, "kResource"}, {21, "kVariant"}, {22, "kUInt32"},   {23, "kUInt64"}};
  auto it = names->find(type);
  return it == names->end() ? absl::StrCat("static_cast<DType>(", type, ")") : "DType::" + it->second;
}

std::string ShapeLiteral(const pb::TensorShapeProto& shape) {
  if (shape.unknown_rank()) return "PartialShape()";
  if (shape.dim_size() == 0) return "PartialShape::Scalar()";
  return absl::StrCat(
      "PartialShape({",
      absl::StrJoin(shape.dim(), ", ", [](std::string* out, const auto& dim) { absl::StrAppend(out, dim.size()); }),
      "})");
}

std::string FloatLiteral(float value) {
  std::string text = absl::StrFormat("%.9g", value);
  if (absl::StrContains(text, "inf")) return value < 0 ? "-INFINITY" : "INFINITY";
  if (absl::StrContains(text, "nan")) return "NAN";
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + "f";
}

// The default as an initialiser; empty if it is the C++ type's own default.
std::string DefaultLiteral(const OpAttr& attr) {
  const pb::AttrValue& v = attr.default_value;
  const auto list = [](const auto& values, auto format) {
    return absl::StrCat(
        "{",
        absl::StrJoin(values, ", ", [&](std::string* out, const auto& value) { absl::StrAppend(out, format(value)); }),
        "}");
  };
  if (attr.type == "bool") return v.b() ? "true" : "false";
  if (attr.type == "int") return absl::StrCat(v.i());
  if (attr.type == "float") return FloatLiteral(v.f());
  if (attr.type == "string") return Quoted(v.s());
  if (attr.type == "type") return TypeName(v.type());
  if (attr.type == "shape") return ShapeLiteral(v.shape());
  if (attr.type == "list(int)") return list(v.list().i(), [](int64_t i) { return absl::StrCat(i); });
  if (attr.type == "list(bool)") return list(v.list().b(), [](bool b) { return b ? "true" : "false"; });
  if (attr.type == "list(float)") return list(v.list().f(), FloatLiteral);
  if (attr.type == "list(string)") return list(v.list().s(), Quoted);
  if (attr.type == "list(type)") return list(v.list().type(), TypeName);
  if (attr.type == "list(shape)") return list(v.list().shape(), ShapeLiteral);
  return "{}";
}

// One op's builder.
class Builder {
 public:
  explicit Builder(const OpSchema& op) : op_(op) {
    std::set<std::string> inferred;
    for (const OpArg& arg : op.inputs) {
      inferred.insert(arg.type_attr);
      inferred.insert(arg.number_attr);
      inferred.insert(arg.type_list_attr);
    }
    for (const OpAttr& attr : op.attrs) {
      if (inferred.contains(attr.name)) continue;
      (attr.has_default ? optional_ : required_).push_back(&attr);
    }
  }

  std::string Declaration() const {
    std::string out;
    if (!optional_.empty()) {
      absl::StrAppend(&out, "struct ", op_.name, "Attrs {\n");
      for (const OpAttr* attr : optional_) {
        absl::StrAppend(&out, "  ", CppType(*attr), " ", Identifier(attr->name), " = ", DefaultLiteral(*attr), ";\n");
      }
      absl::StrAppend(&out, "};\n");
    }
    if (HasOutputsStruct()) {
      absl::StrAppend(&out, "struct ", op_.name, "Outputs {\n");
      for (const OpArg& arg : op_.outputs) {
        absl::StrAppend(&out, "  ", arg.is_list() ? "std::vector<Output>" : "Output", " ", Identifier(arg.name), ";\n");
      }
      absl::StrAppend(&out, "};\n");
    }
    if (!op_.summary.empty()) absl::StrAppend(&out, "// ", op_.summary, "\n");
    return absl::StrCat(out, Signature(/*with_defaults=*/true), ";\n\n");
  }

  std::string Definition() const {
    std::string call = absl::StrCat("OpCall(scope, \"", op_.name, "\")");
    for (const OpArg& arg : op_.inputs) absl::StrAppend(&call, ".In(", Identifier(arg.name), ")");
    for (const OpAttr* attr : required_) {
      absl::StrAppend(&call, ".Attr(\"", attr->name, "\", ", Identifier(attr->name), ")");
    }
    for (const OpAttr* attr : optional_) {
      absl::StrAppend(&call, ".Attr(\"", attr->name, "\", attrs.", Identifier(attr->name), ")");
    }
    absl::StrAppend(&call, ".Add()");
    return absl::StrCat(Signature(false), " {\n", Body(call), "}\n\n");
  }

 private:
  bool HasOutputsStruct() const { return op_.outputs.size() > 1; }

  std::string ResultType() const {
    if (op_.outputs.empty()) return "Operation";
    if (HasOutputsStruct()) return op_.name + "Outputs";
    return op_.outputs[0].is_list() ? "std::vector<Output>" : "Output";
  }

  std::string Signature(bool with_defaults) const {
    std::vector<std::string> params = {"const Scope& scope"};
    for (const OpArg& arg : op_.inputs) {
      params.push_back(absl::StrCat(arg.is_list() ? "const InputList& " : "const Input& ", Identifier(arg.name)));
    }
    for (const OpAttr* attr : required_) {
      const std::string type = CppType(*attr);
      const bool by_value = type == "bool" || type == "int64_t" || type == "float" || type == "DType";
      params.push_back(absl::StrCat(by_value ? type : "const " + type + "&", " ", Identifier(attr->name)));
    }
    if (!optional_.empty()) {
      params.push_back(absl::StrCat("const ", op_.name, "Attrs& attrs", with_defaults ? " = {}" : ""));
    }
    return absl::StrCat(ResultType(), " ", op_.name, "(", absl::StrJoin(params, ", "), ")");
  }

  std::string Body(const std::string& call) const {
    if (op_.outputs.empty()) return absl::StrCat("  return ", call, ";\n");
    if (op_.outputs.size() == 1 && !op_.outputs[0].is_list()) return absl::StrCat("  return ", call, ".output(0);\n");
    std::string out = absl::StrCat("  const Operation op = ", call, ";\n");
    if (op_.outputs.size() == 1) return absl::StrCat(out, "  return op.outputs(0, op.num_outputs());\n");
    // The node determines the lengths of list outputs; any other output is a single tensor.
    absl::StrAppend(&out, "  OutputSplitter split(op);\n  return {");
    std::vector<std::string> members;
    for (size_t i = 0; i < op_.outputs.size(); ++i) {
      members.push_back(op_.outputs[i].is_list() ? absl::StrCat("split.List(", i, ")") : "split.One()");
    }
    return absl::StrCat(out, absl::StrJoin(members, ", "), "};\n");
  }

  const OpSchema& op_;
  std::vector<const OpAttr*> required_;
  std::vector<const OpAttr*> optional_;
};

bool WriteIfChanged(const std::string& path, const std::string& contents) {
  std::ifstream in(path);
  if (in) {
    std::stringstream old;
    old << in.rdbuf();
    if (old.str() == contents) return true;
  }
  std::ofstream out(path, std::ios::trunc);
  out << contents;
  out.close();
  if (!out) std::cerr << "op_builder_gen: cannot write " << path << "\n";
  return static_cast<bool>(out);
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: op_builder_gen OUT_DIR FAMILY...\n";
    return 2;
  }
  const std::string out_dir = argv[1];
  std::map<std::string, std::vector<const OpSchema*>> families;
  for (int i = 2; i < argc; ++i) families[argv[i]];
  for (const OpSchema* op : OpRegistry::Global().All()) {
    if (IsInternal(*op) || IsHandWritten(*op)) continue;
    auto it = families.find(op->family);
    if (it == families.end()) {
      std::cerr << "op_builder_gen: op " << op->name << " is of the family '" << op->family
                << "', which is no folder of millrace/ops\n";
      return 1;
    }
    it->second.push_back(op);
  }
  bool ok = true;
  std::string all =
      "// Generated by op_builder_gen: the builders of all ops.\n#pragma once\n\n"
      "#include \"millrace/api/const_op.h\"\n";
  for (const auto& [family, ops] : families) {
    const std::string header = absl::StrCat("millrace/api/ops/", family, "_ops.h");
    std::string h = absl::StrCat("// Generated by op_builder_gen from the schemas in millrace/ops/", family,
                                 ".\n#pragma once\n\n#include <cmath>\n#include <string>\n#include <vector>\n\n"
                                 "#include \"millrace/api/input.h\"\n\nnamespace millrace::ops {\n\n");
    std::string cc = absl::StrCat("// Generated by op_builder_gen.\n#include \"", header,
                                  "\"\n\n#include \"millrace/api/op_call.h\"\n\nnamespace millrace::ops {\n\n");
    for (const OpSchema* op : ops) {
      const Builder builder(*op);
      h += builder.Declaration();
      cc += builder.Definition();
    }
    h += "}  // namespace millrace::ops\n";
    cc += "}  // namespace millrace::ops\n";
    ok &= WriteIfChanged(absl::StrCat(out_dir, "/", family, "_ops.h"), h);
    ok &= WriteIfChanged(absl::StrCat(out_dir, "/", family, "_ops.cc"), cc);
    absl::StrAppend(&all, "#include \"", header, "\"\n");
  }
  ok &= WriteIfChanged(out_dir + "/all_ops.h", all);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
