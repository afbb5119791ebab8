#include "millrace/api/op_call.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/api/scope_state.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {
namespace {

bool Allows(const OpAttr& attr, DType type) {
  return attr.allowed_types.empty() ||
         std::find(attr.allowed_types.begin(), attr.allowed_types.end(), type) != attr.allowed_types.end();
}

// The type of literals if no tensor determines it: the attr's default, the literals' default type, or float if that is
// not allowed.
DType TypeOfLiterals(const OpAttr& attr, DType usual) {
  if (attr.has_default) {
    const DType type = static_cast<DType>(attr.default_value.type());
    // An int64 literal overrides an int32 default of an index type.
    if (usual != DType::kInt64 || !Allows(attr, usual)) return type;
  }
  if (Allows(attr, usual)) return usual;
  return Allows(attr, DType::kFloat) ? DType::kFloat : usual;
}

DType Wider(DType a, DType b) {
  if (a == DType::kInvalid) return b;
  if (a == DType::kFloat || b == DType::kFloat) return DType::kFloat;
  return a == DType::kInt64 ? a : b;
}

// The local part of a full name.
absl::string_view BaseName(absl::string_view full) {
  const size_t slash = full.rfind('/');
  return slash == absl::string_view::npos ? full : full.substr(slash + 1);
}

}  // namespace

// The types of the schema's attrs as determined by the call, and its flattened inputs.
struct OpCall::Resolved {
  absl::flat_hash_map<std::string, DType> types;
  absl::flat_hash_map<std::string, DType> usual;
};

OpCall& OpCall::In(const Input& input) & {
  args_.push_back({&input, nullptr});
  return *this;
}
OpCall& OpCall::In(const InputList& list) & {
  args_.push_back({nullptr, &list});
  return *this;
}
#define MR_ATTR(type)                                   \
  OpCall& OpCall::Attr(const char* name, type value)& { \
    attrs_.emplace_back(name, value);                   \
    return *this;                                       \
  }
MR_ATTR(bool)
MR_ATTR(int64_t)
MR_ATTR(float)
MR_ATTR(DType)
MR_ATTR(const std::string&)
MR_ATTR(const PartialShape&)
MR_ATTR(const Tensor&)
MR_ATTR(const std::vector<int64_t>&)
MR_ATTR(const std::vector<float>&)
MR_ATTR(const std::vector<bool>&)
MR_ATTR(const std::vector<DType>&)
MR_ATTR(const std::vector<std::string>&)
MR_ATTR(const std::vector<PartialShape>&)
MR_ATTR(const pb::AttrValue&)
#undef MR_ATTR
OpCall& OpCall::Attr(const char* name, const pb::NameAttrList& value) & {
  pb::AttrValue attr;
  *attr.mutable_func() = value;
  attrs_.emplace_back(name, std::move(attr));
  return *this;
}

// Determines types from tensors and attrs, and the default types of literal inputs.
Status OpCall::Resolve(const OpSchema& schema, Resolved* out) const {
  if (args_.size() != schema.inputs.size()) {
    return InvalidArgument("takes ", schema.inputs.size(), " inputs, not ", args_.size());
  }
  for (const auto& [name, init] : attrs_) {
    if (init.value().value_case() == pb::AttrValue::kType) {
      out->types[name] = static_cast<DType>(init.value().type());
    }
  }
  for (size_t i = 0; i < args_.size(); ++i) {
    const OpArg& arg = schema.inputs[i];
    if (arg.is_list() != (args_[i].list != nullptr)) {
      return InvalidArgument("input '", arg.name, "' is ", arg.is_list() ? "a list" : "one tensor, not a list");
    }
    const size_t n = arg.is_list() ? args_[i].list->inputs().size() : 1;
    for (size_t k = 0; k < n; ++k) {
      const Input& input = arg.is_list() ? args_[i].list->inputs()[k] : *args_[i].one;
      if (input.is_nothing()) {
        return InvalidArgument("input '", arg.name,
                               "' is empty: a default-constructed Output, or a gradient "
                               "that does not exist");
      }
      if (input.is_output() && !api_internal::StateOf(scope_).MayUse(api_internal::StateOf(input.output().scope()))) {
        return InvalidArgument("input '", arg.name, "' (", input.output().name(), ") belongs to another graph");
      }
      if (arg.type_attr.empty()) continue;
      if (input.dtype() != DType::kInvalid) {
        out->types.try_emplace(arg.type_attr, input.dtype());
      } else {
        DType& usual = out->usual[arg.type_attr];
        usual = Wider(usual, input.literal().usual_type());
      }
    }
  }
  for (const auto& [attr_name, usual] : out->usual) {
    const OpAttr* attr = schema.FindAttr(attr_name);
    if (attr != nullptr && !out->types.contains(attr_name)) {
      out->types[attr_name] = TypeOfLiterals(*attr, usual);
    }
  }
  return absl::OkStatus();
}

Status OpCall::Complete(const OpSchema& schema) {
  Resolved resolved;
  MR_RETURN_IF_ERROR(Resolve(schema, &resolved));
  const api_internal::ScopeSettings& settings = api_internal::SettingsOf(scope_);
  const std::string full_name =
      !settings.taken_name.empty()
          ? settings.taken_name
          : api_internal::TakeName(
                scope_, settings.op_name.empty() ? absl::string_view(op_) : absl::string_view(settings.op_name));
  // Constants are named after the argument they stand for and wait for nothing.
  const Scope constants = scope_.WithoutControlDependencies().WithPrefix(full_name);

  std::vector<Endpoint> inputs;
  for (size_t i = 0; i < args_.size(); ++i) {
    const OpArg& arg = schema.inputs[i];
    const size_t n = arg.is_list() ? args_[i].list->inputs().size() : 1;
    std::vector<DType> list_types;
    for (size_t k = 0; k < n; ++k) {
      const Input& input = arg.is_list() ? args_[i].list->inputs()[k] : *args_[i].one;
      DType type = arg.type;
      if (auto it = resolved.types.find(arg.type_attr); it != resolved.types.end()) type = it->second;
      const Output tensor = input.In(constants, type, arg.is_list() ? absl::StrCat(arg.name, "_", k) : arg.name);
      MR_RETURN_IF_ERROR(scope_.status());
      list_types.push_back(tensor.dtype());
      inputs.push_back(tensor.endpoint());
    }
    if (!arg.number_attr.empty()) attrs_.emplace_back(arg.number_attr, static_cast<int64_t>(n));
    if (!arg.type_list_attr.empty()) attrs_.emplace_back(arg.type_list_attr, list_types);
  }

  GraphBuilder builder(scope_.graph());
  const absl::string_view base = BaseName(full_name);
  if (base.size() < full_name.size()) builder.prefix = full_name.substr(0, full_name.size() - base.size() - 1);
  builder.control_inputs = settings.control_inputs;
  builder.colocate_with = settings.colocate_with;
  node_ = builder.AddNode(op_, inputs, std::move(attrs_), base);
  if (node_ == nullptr) return builder.status();
  return api_internal::AskForDevice(settings, node_);
}

namespace {

// Random ops without their own seeds get seeds derived from the graph's.
void AddSeeds(const OpSchema& schema, const Scope& scope, AttrList* attrs) {
  if (!api_internal::StateOf(scope).random_seed || !schema.is_stateful || schema.FindAttr("seed") == nullptr ||
      schema.FindAttr("seed2") == nullptr) {
    return;
  }
  for (const auto& [name, init] : *attrs) {
    if ((name == "seed" || name == "seed2") && init.value().i() != 0) return;
  }
  std::erase_if(*attrs, [](const auto& attr) { return attr.first == "seed" || attr.first == "seed2"; });
  const auto [seed, seed2] = scope.OpSeeds();
  attrs->emplace_back("seed", seed);
  attrs->emplace_back("seed2", seed2);
}

}  // namespace

Operation OpCall::Add() {
  const Operation nothing(scope_.WithoutOpName(), nullptr);
  if (!scope_.ok()) return nothing;
  StatusOr<const OpSchema*> schema = OpRegistry::Global().Find(op_);
  if (!schema.ok()) {
    scope_.UpdateStatus(schema.status());
    return nothing;
  }
  AddSeeds(**schema, scope_, &attrs_);
  Status status = Complete(**schema);
  if (!status.ok()) {
    // Errors from the graph name the node; those found here do not.
    if (!absl::StrContains(status.message(), "{{node")) {
      const std::string name = absl::StrCat(scope_.prefix(), scope_.prefix().empty() ? "" : "/",
                                            scope_.op_name().empty() ? op_ : scope_.op_name());
      status = WithPrefix(absl::StrCat("{{node ", name, "}} (op ", op_, "): "), status);
    }
    scope_.UpdateStatus(status);
    return nothing;
  }
  return Operation(scope_.WithoutOpName(), node_);
}

std::vector<Output> OutputSplitter::List(int arg) {
  if (op_.empty()) return {};
  const OpArg& schema = op_.node()->op().outputs[arg];
  const int n = schema.number_attr.empty()
                    ? static_cast<int>(op_.node()->AttrOr<std::vector<DType>>(schema.type_list_attr, {}).size())
                    : static_cast<int>(op_.node()->AttrOr<int64_t>(schema.number_attr, 0));
  next_ += n;
  return op_.outputs(next_ - n, next_);
}

Operation AddOp(const Scope& scope, const char* op, const std::vector<Operand>& inputs, AttrList attrs) {
  OpCall call(scope, op);
  for (const Operand& operand : inputs) {
    if (operand.is_list_) {
      call.In(operand.list_);
    } else {
      call.In(operand.one_);
    }
  }
  for (const auto& [name, init] : attrs) call.Attr(name.c_str(), init.value());
  return call.Add();
}

}  // namespace millrace
