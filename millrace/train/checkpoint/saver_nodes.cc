#include "millrace/train/checkpoint/saver_nodes.h"

#include <algorithm>
#include <random>
#include <tuple>

#include "absl/strings/str_format.h"
#include "millrace/api/op_call.h"
#include "millrace/api/variable_slice.h"
#include "millrace/graph/device_name.h"

namespace millrace::train_internal {

std::string FileDevice(const Var& variable) {
  const std::string& asked = variable.handle().node()->requested_device();
  if (asked.empty()) return "";
  StatusOr<DeviceName> device = DeviceName::Parse(asked);
  if (!device.ok()) return asked;
  device->type = "CPU";
  device->index = 0;
  return device->ToString();
}

namespace {

// A unique name: several savers, in any processes, may save to one directory.
std::string RandomDigits() {
  std::random_device entropy;
  std::string digits;
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&digits, "%08x", entropy());
  return digits;
}

// The variables that one op saves and restores.
struct Shard {
  std::string device;
  std::vector<const SavedVariable*> variables;
};

std::vector<Shard> ShardsOf(const std::vector<SavedVariable>& variables, bool sharded) {
  std::vector<Shard> shards;
  for (const SavedVariable& saved : variables) {
    const std::string device = FileDevice(saved.variable);
    auto at = std::find_if(shards.begin(), shards.end(),
                           [&](const Shard& shard) { return !sharded || shard.device == device; });
    if (at == shards.end()) at = shards.insert(at, {device, {}});
    at->variables.push_back(&saved);
  }
  if (sharded)
    std::sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) { return a.device < b.device; });
  return shards;
}

class Builder {
 public:
  Builder(const Scope& scope, const Shard& shard) : scope_(scope), shard_(shard), there_(At(scope, shard.device)) {
    for (const SavedVariable* saved : shard.variables) {
      names_.push_back(saved->name);
      slices_.push_back(saved->slice);
      types_.push_back(saved->variable.dtype());
    }
  }
  static Scope At(const Scope& scope, const std::string& device) {
    return device.empty() ? scope : scope.WithoutDevice().WithDevice(device);
  }
  const Scope& there() const { return there_; }

  // Returns the prefix, once the shard is written.
  Output Save(const Output& prefix) const {
    std::vector<Input> values;
    for (const SavedVariable* saved : shard_.variables)
      values.emplace_back(static_cast<const Output&>(saved->variable));
    const Operation save = AddOp(there_.WithOpName("SaveV2"), "SaveV2",
                                 {prefix, names_, slices_, InputList(std::move(values))}, {{"dtypes", types_}});
    if (!there_.ok()) return Output();
    return Op(there_.WithControlDependencies({save}).WithOpName("control_dependency"), "Identity", {prefix});
  }
  void Restore(const Output& prefix, std::vector<Operation>* assigns) const {
    const Operation values =
        AddOp(there_.WithOpName("RestoreV2"), "RestoreV2", {prefix, names_, slices_}, {{"dtypes", types_}});
    for (size_t i = 0; i < shard_.variables.size() && there_.ok(); ++i) {
      const Var& variable = shard_.variables[i]->variable;
      assigns->push_back(variable.Assign(scope_.ColocateWith(variable.handle()), values.output(static_cast<int>(i))));
    }
  }

 private:
  const Scope scope_;
  const Shard& shard_;
  const Scope there_;
  std::vector<std::string> names_, slices_;
  std::vector<DType> types_;
};

}  // namespace

StatusOr<std::vector<SavedVariable>> SavedVariables(const std::vector<Var>& variables,
                                                    const std::map<std::string, Var>& names) {
  std::vector<SavedVariable> all;
  const auto add = [&](const Var& variable, const std::string* name) -> Status {
    if (variable.handle().empty())
      return InvalidArgument("a variable to save is empty", name == nullptr ? "" : ": ", name == nullptr ? "" : *name);
    const VariableSlice* const slice = SliceOf(variable);
    all.push_back({name != nullptr    ? *name
                   : slice != nullptr ? slice->full_name
                                      : variable.var_name(),
                   slice == nullptr ? "" : slice->Spec(), variable});
    return absl::OkStatus();
  };
  for (const Var& variable : variables) MR_RETURN_IF_ERROR(add(variable, nullptr));
  for (const auto& [name, variable] : names) MR_RETURN_IF_ERROR(add(variable, &name));
  std::stable_sort(all.begin(), all.end(),
                   [](const SavedVariable& a, const SavedVariable& b) { return a.name < b.name; });
  for (size_t i = 1; i < all.size(); ++i) {
    const SavedVariable &a = all[i - 1], &b = all[i];
    if (a.name == b.name && (a.slice == b.slice || a.slice.empty() || b.slice.empty())) {
      return InvalidArgument("variables ", a.variable.var_name(), " and ", b.variable.var_name(),
                             " would both be saved as ", a.name);
    }
  }
  return all;
}

namespace {

// Completes when all variables have been read. One op per task, to keep traffic between tasks low.
Output AllRead(const Scope& s, const std::vector<SavedVariable>& variables, const Output& prefix) {
  std::vector<Operation> tasks;
  for (const Shard& task : ShardsOf(variables, true)) {
    std::vector<Operation> reads;
    for (const SavedVariable* saved : task.variables) reads.emplace_back(static_cast<const Output&>(saved->variable));
    tasks.push_back(Group(Builder::At(s, task.device).WithOpName("read_there"), reads));
  }
  return s.ok() ? Op(s.WithControlDependencies(tasks).WithOpName("read"), "Identity", {prefix}) : Output();
}

}  // namespace

SaverNodes AddSaverNodes(const Scope& scope, const std::string& name, const std::vector<SavedVariable>& variables,
                         bool sharded) {
  const Scope s = scope.WithoutControlDependencies().WithoutOpName().SubScope(name);
  SaverNodes nodes;
  const auto placeholder = [&](const char* called, const Input& value) {
    return Op(s.WithOpName(called), "PlaceholderWithDefault", {value}, {{"shape", PartialShape::Scalar()}});
  };
  nodes.filename = placeholder("Const", placeholder("filename", "model"));

  std::vector<Operation> assigns;
  const std::vector<Shard> shards = ShardsOf(variables, sharded);
  if (!sharded) {
    const Builder builder(s, shards[0]);
    nodes.saved = builder.Save(nodes.filename);
    builder.Restore(nodes.filename, &assigns);
  } else {
    nodes.temporary = absl::StrCat("_temp_", RandomDigits());
    const Output parts =
        Op(s, "StringJoin", {InputList{nodes.filename, Input(absl::StrCat(nodes.temporary, "/part"))}});
    const auto count = static_cast<int32_t>(shards.size());
    std::vector<Input> prefixes;
    std::vector<Operation> saved;
    for (int32_t i = 0; i < count; ++i) {
      const Builder builder(s, shards[static_cast<size_t>(i)]);
      const Output prefix = Op(builder.there(), "ShardedFilename", {parts, i, count});
      prefixes.emplace_back(prefix);
      saved.emplace_back(builder.Save(prefix));
    }
    if (!s.ok()) return nodes;
    // On the task of the last shard, as in TensorFlow.
    const Scope last = Builder::At(s, shards.back().device);
    const Output all = Op(last.WithControlDependencies(saved).WithOpName("MergeV2Checkpoints/checkpoint_prefixes"),
                          "Pack", {InputList(prefixes)});
    const Operation merge = AddOp(last, "MergeV2Checkpoints", {all, nodes.filename});
    if (!s.ok()) return nodes;
    nodes.saved = Op(last.WithControlDependencies({merge}).WithOpName("saved"), "Identity", {nodes.filename});
    for (const Shard& shard : shards) Builder(s, shard).Restore(nodes.filename, &assigns);
  }
  if (s.ok()) nodes.read = AllRead(s, variables, nodes.filename);
  if (s.ok()) nodes.restore = Group(s.WithOpName("restore_all"), assigns);
  return nodes;
}

}  // namespace millrace::train_internal
