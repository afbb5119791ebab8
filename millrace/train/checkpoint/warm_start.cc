#include "millrace/train/checkpoint/warm_start.h"

#include <re2/re2.h>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"
#include "millrace/api/variable_slice.h"
#include "millrace/io/bundle.h"
#include "millrace/train/checkpoint/checkpoint_reader.h"
#include "millrace/train/checkpoint/saver_nodes.h"

namespace millrace {
namespace {

using api_internal::VariableNodes;

// A variable and the tensor that it is initialised from.
struct Wanted {
  VariableNodes* nodes;
  Var variable;
  std::string name;  // in the checkpoint
};

// The name of the whole variable, if this is a slice of a partitioned one.
std::string WholeName(const Var& variable) {
  const VariableSlice* const slice = SliceOf(variable);
  return slice == nullptr ? variable.var_name() : slice->full_name;
}

Status Check(const Wanted& wanted, const BundleReader& reader) {
  const VariableSlice* const slice = SliceOf(wanted.variable);
  const PartialShape shape = slice == nullptr ? wanted.variable.shape() : PartialShape(slice->full_shape);
  StatusOr<BundleTensor> found = reader.Find(wanted.name);
  if (absl::IsNotFound(found.status())) {
    return NotFound("variable ", WholeName(wanted.variable), " is to be initialised from ", wanted.name,
                    ", which checkpoint ", reader.prefix(), " does not have");
  }
  MR_RETURN_IF_ERROR(found.status());
  if (!shape.IsCompatibleWith(found->shape)) {
    return InvalidArgument("variable ", WholeName(wanted.variable), " of shape ", shape.ToString(),
                           " cannot be initialised from ", wanted.name, " of checkpoint ", reader.prefix(),
                           ", which has shape ", found->shape.ToString());
  }
  if (found->dtype != wanted.variable.dtype()) {
    return InvalidArgument("variable ", WholeName(wanted.variable), " of type ", wanted.variable.dtype(),
                           " cannot be initialised from ", wanted.name, " of checkpoint ", reader.prefix(),
                           ", which has type ", found->dtype);
  }
  return absl::OkStatus();
}

Status Apply(const Scope& scope, const std::string& prefix, const std::vector<Wanted>& all, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(files, prefix));
  for (const Wanted& wanted : all) MR_RETURN_IF_ERROR(Check(wanted, *reader));
  const Scope s = scope.WithPrefix("").WithoutControlDependencies().WithoutDevice().SubScope("warm_start");
  for (const Wanted& wanted : all) {
    const std::string device = train_internal::FileDevice(wanted.variable);
    const Scope there = device.empty() ? s : s.WithDevice(device);
    const VariableSlice* const slice = SliceOf(wanted.variable);
    const Output value = Op(there, "RestoreV2",
                            {prefix, std::vector<std::string>{wanted.name},
                             std::vector<std::string>{slice == nullptr ? "" : slice->Spec()}},
                            {{"dtypes", std::vector<DType>{wanted.variable.dtype()}}});
    const Operation assign = wanted.variable.Assign(s.ColocateWith(wanted.variable.handle()), value);
    MR_RETURN_IF_ERROR(scope.status());
    wanted.nodes->initial_value = value.endpoint();
    wanted.nodes->initializer = assign.node();
  }
  return absl::OkStatus();
}

}  // namespace

Status WarmStart(const Scope& scope, const std::string& checkpoint, const WarmStartOptions& options) {
  MR_RETURN_IF_ERROR(scope.status());
  MR_ASSIGN_OR_RETURN(const std::string prefix, FindCheckpoint(checkpoint, options.files));
  std::vector<std::unique_ptr<RE2>> patterns;
  for (const std::string& text : options.variables) {
    patterns.push_back(std::make_unique<RE2>(text, RE2::Quiet));
    if (!patterns.back()->ok())
      return InvalidArgument("'", text, "' is not a valid regular expression: ", patterns.back()->error());
  }
  std::map<std::string, std::string> unused = options.names_in_checkpoint;
  std::vector<Wanted> all;
  for (VariableNodes& nodes : api_internal::StateOf(scope).variables) {
    const Var variable(scope, nodes);
    const std::string name = WholeName(variable);
    const auto renamed = options.names_in_checkpoint.find(name);
    bool wanted = false;
    for (const auto& pattern : patterns)
      wanted = wanted || pattern->Match(name, 0, name.size(), RE2::ANCHOR_START, nullptr, 0);
    if (!wanted || (options.trainable_only && !variable.trainable())) continue;
    all.push_back({&nodes, variable, renamed == options.names_in_checkpoint.end() ? name : renamed->second});
    unused.erase(name);
  }
  if (!unused.empty())
    return NotFound("warm start: names_in_checkpoint has ", unused.begin()->first,
                    ", which is not a variable to warm-start");
  if (all.empty()) return NotFound("warm start: no variable of the graph matches");
  return Apply(scope, prefix, all, options.files);
}

Status InitFromCheckpoint(const Scope& scope, const std::string& checkpoint,
                          const std::map<std::string, std::string>& assignments, FileSystem* files) {
  MR_RETURN_IF_ERROR(scope.status());
  MR_ASSIGN_OR_RETURN(const std::string prefix, FindCheckpoint(checkpoint, files));
  std::vector<Wanted> all;
  for (const auto& [from, to] : assignments) {
    const size_t before = all.size();
    const bool scopes = absl::EndsWith(from, "/");
    if (scopes != (absl::EndsWith(to, "/") || (scopes && to.empty()))) {
      return InvalidArgument("'", from, "' and '", to,
                             "': map a scope, which ends with '/', to a scope, and a name to a name");
    }
    for (VariableNodes& nodes : api_internal::StateOf(scope).variables) {
      const Var variable(scope, nodes);
      const std::string name = WholeName(variable);
      absl::string_view rest = name;
      if (!scopes) {
        if (name == to) all.push_back({&nodes, variable, from});
      } else if (to == "/" || absl::ConsumePrefix(&rest, to)) {
        all.push_back({&nodes, variable, absl::StrCat(from == "/" ? "" : from, rest)});
      }
    }
    if (all.size() == before)
      return NotFound("the graph has no variable ", to, ", which is to be initialised from ", from, " of checkpoint ",
                      prefix);
  }
  return Apply(scope, prefix, all, files);
}

}  // namespace millrace
