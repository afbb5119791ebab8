#include "millrace/graph/node_types.h"

namespace millrace {
namespace {

const pb::AttrValue* Find(const AttrMap& attrs, absl::string_view name) {
  auto it = attrs.find(std::string_view(name.data(), name.size()));
  return it == attrs.end() ? nullptr : &it->second;
}

// The attr that determines the length of a list argument.
const std::string& LengthAttr(const OpArg& arg) {
  return arg.number_attr.empty() ? arg.type_list_attr : arg.number_attr;
}

// The number of tensors of `arg` for `attrs`; -1 if not given.
int64_t GivenCount(const OpArg& arg, const AttrMap& attrs) {
  if (!arg.is_list()) return 1;
  const pb::AttrValue* value = Find(attrs, LengthAttr(arg));
  if (value == nullptr) return -1;
  return arg.number_attr.empty() ? value->list().type_size() : value->i();
}

// The length of each list whose length is not given: the inputs that no other argument takes, divided evenly among the
// arguments that depend on the one unknown attr.
StatusOr<int64_t> UnknownCount(const OpSchema& op, int64_t num_inputs, const AttrMap& attrs) {
  const std::string* unknown = nullptr;
  int64_t left = num_inputs;
  int64_t sharers = 0;
  for (const OpArg& arg : op.inputs) {
    const int64_t count = GivenCount(arg, attrs);
    if (count >= 0) {
      left -= count < num_inputs ? count : num_inputs + 1;
      continue;
    }
    if (unknown != nullptr && *unknown != LengthAttr(arg)) {
      return InvalidArgument("the inputs can be split between '", *unknown, "' and '", LengthAttr(arg),
                             "' in several ways: give one of these attrs");
    }
    unknown = &LengthAttr(arg);
    ++sharers;
  }
  if (sharers == 0) return 0;
  if (left < 0 || left % sharers != 0) {
    return InvalidArgument("takes other numbers of inputs than the ", num_inputs, " given");
  }
  return left / sharers;
}

void SetType(const std::string& name, DType type, AttrMap* attrs) {
  (*attrs)[name].set_type(static_cast<pb::DataType>(BaseType(type)));
}

// Sets the attrs of one argument that takes `types`.
void InferFromArg(const OpArg& arg, absl::Span<const DType> types, AttrMap* attrs) {
  if (!arg.type_list_attr.empty()) {
    if (Find(*attrs, arg.type_list_attr) != nullptr) return;
    auto* list = (*attrs)[arg.type_list_attr].mutable_list();
    for (DType t : types) list->add_type(static_cast<pb::DataType>(BaseType(t)));
    return;
  }
  if (!arg.number_attr.empty() && Find(*attrs, arg.number_attr) == nullptr) {
    (*attrs)[arg.number_attr].set_i(static_cast<int64_t>(types.size()));
  }
  if (!arg.type_attr.empty() && !types.empty() && Find(*attrs, arg.type_attr) == nullptr) {
    SetType(arg.type_attr, types[0], attrs);
  }
}

Status AppendTypes(const OpSchema& op, const OpArg& arg, const AttrMap& attrs, int64_t room,
                   const std::function<void(DType)>& append) {
  auto as_declared = [&](DType t) { return arg.is_ref ? RefType(t) : t; };
  if (!arg.type_list_attr.empty()) {
    const auto& list = FindAttr(op, attrs, arg.type_list_attr)->list();
    if (list.type_size() > room) {
      return InvalidArgument("attr '", arg.type_list_attr, "' asks for ", list.type_size(),
                             " tensors, more than there are or may be");
    }
    for (int t : list.type()) append(as_declared(static_cast<DType>(t)));
    return absl::OkStatus();
  }
  DType type = arg.type;
  if (!arg.type_attr.empty()) type = static_cast<DType>(FindAttr(op, attrs, arg.type_attr)->type());
  int64_t count = 1;
  if (!arg.number_attr.empty()) count = FindAttr(op, attrs, arg.number_attr)->i();
  if (count < 0 || count > room) {
    return arg.number_attr.empty() ? InvalidArgument("has too few inputs: none for '", arg.name, "'")
                                   : InvalidArgument("attr '", arg.number_attr, "' asks for ", count, " tensors for '",
                                                     arg.name, "', more than there are or may be");
  }
  for (int64_t i = 0; i < count; ++i) append(as_declared(type));
  return absl::OkStatus();
}

}  // namespace

const pb::AttrValue* FindAttr(const OpSchema& op, const AttrMap& attrs, absl::string_view name) {
  if (const pb::AttrValue* value = Find(attrs, name)) return value;
  const OpAttr* declared = op.FindAttr(name);
  return declared != nullptr && declared->has_default ? &declared->default_value : nullptr;
}

Status InferAttrs(const OpSchema& op, absl::Span<const DType> input_types, AttrMap* attrs) {
  // The code below relies on given values being of the declared kinds.
  for (const auto& [name, value] : *attrs) {
    const OpAttr* declared = op.FindAttr(name);
    if (declared != nullptr) MR_RETURN_IF_ERROR(CheckAttr(*declared, value));
  }
  const int64_t total = static_cast<int64_t>(input_types.size());
  MR_ASSIGN_OR_RETURN(const int64_t unknown, UnknownCount(op, total, *attrs));
  // Compute all counts first: an attr set for one argument must not change the count of another.
  absl::InlinedVector<int64_t, 4> counts;
  for (const OpArg& arg : op.inputs) {
    const int64_t given = GivenCount(arg, *attrs);
    counts.push_back(given >= 0 ? given : unknown);
  }
  int64_t next = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (counts[i] > total - next) {
      return InvalidArgument("takes more inputs than the ", total, " given: '", op.inputs[i].name, "' has not enough");
    }
    InferFromArg(op.inputs[i], input_types.subspan(next, counts[i]), attrs);
    next += counts[i];
  }
  return absl::OkStatus();
}

Status CheckAttrs(const OpSchema& op, const AttrMap& attrs) {
  size_t found = 0;
  for (const auto& [name, value] : attrs) {
    const OpAttr* declared = op.FindAttr(name);
    if (declared != nullptr) {
      MR_RETURN_IF_ERROR(CheckAttr(*declared, value));
      ++found;
    } else if (name.empty() || name[0] != '_') {
      return InvalidArgument("has the attr '", name, "', which the op does not");
    }
  }
  if (found == op.attrs.size()) return absl::OkStatus();
  for (const OpAttr& declared : op.attrs) {
    if (!declared.has_default && Find(attrs, declared.name) == nullptr) {
      return NotFound("No attr named '", declared.name, "' in the node");
    }
  }
  return absl::OkStatus();
}

Status ResolveTypes(const OpSchema& op, const AttrMap& attrs, int num_inputs, absl::InlinedVector<DType, 4>* inputs,
                    absl::InlinedVector<DType, 2>* outputs) {
  inputs->reserve(static_cast<size_t>(num_inputs));
  for (const OpArg& arg : op.inputs) {
    MR_RETURN_IF_ERROR(AppendTypes(op, arg, attrs, num_inputs - static_cast<int64_t>(inputs->size()),
                                   [&](DType t) { inputs->push_back(t); }));
  }
  for (const OpArg& arg : op.outputs) {
    MR_RETURN_IF_ERROR(AppendTypes(op, arg, attrs, kMaxOutputs - static_cast<int64_t>(outputs->size()),
                                   [&](DType t) { outputs->push_back(t); }));
  }
  return absl::OkStatus();
}

std::string InputName(const Node& node, int i) {
  int64_t end = 0;
  for (const OpArg& arg : node.op().inputs) {
    int64_t count = 1;
    if (arg.is_list()) {
      const pb::AttrValue* value = node.FindAttr(LengthAttr(arg));
      if (value != nullptr) count = arg.number_attr.empty() ? value->list().type_size() : value->i();
    }
    if (i < end + count) return arg.is_list() ? absl::StrCat(arg.name, "[", i - end, "]") : arg.name;
    end += count;
  }
  return absl::StrCat(i);
}

}  // namespace millrace
