#include "millrace/api/replica.h"

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"

namespace millrace::api_internal {

Scope RecordAggregations(const Scope& scope, std::shared_ptr<VariableAggregations> into) {
  return scope.WithVariableCreator(
      [into = std::move(into)](const Scope& s, const VariableRequest& request, const NextVariable& next) {
        const Var made = next(s, request);
        if (!made.handle().empty()) into->insert({made.handle().node(), request.options.aggregation});
        return made;
      });
}

Operation ReplicaAssignments::Add(const Scope& scope, const Var& variable, const char* op, const Output& value) {
  const Operation done = AddOp(scope, "NoOp", {});
  const Endpoint weight = SettingsOf(scope).replica->weight;
  replicas_.back().push_back({variable, op, value, done, weight ? Output(scope, weight) : Output()});
  return done;
}

Status ReplicaAssignments::CheckSame(int first) const {
  for (size_t r = 1; r < replicas_.size(); ++r) {
    const std::vector<Assignment>&one = replicas_[0], &other = replicas_[r];
    bool same = one.size() == other.size();
    for (size_t i = 0; same && i < one.size(); ++i) {
      same = one[i].variable.handle().node() == other[i].variable.handle().node() && one[i].op == other[i].op;
    }
    if (same) continue;
    return InvalidArgument("replicas ", first, " and ", first + static_cast<int>(r),
                           " do not assign the same variables: ", one.size(), " and ", other.size(), " assignments",
                           one.empty() ? "" : absl::StrCat(", the first of ", one[0].variable.var_name()));
  }
  return absl::OkStatus();
}

Scope ReplicaScope(const Scope& scope, const std::string& name, int number, int count,
                   const std::shared_ptr<ReplicaAssignments>& assignments, const Output& weight) {
  assignments->BeginReplica();
  auto changed = std::make_shared<ReplicaSettings>();
  // Weak: what is recorded has scopes, which have this function.
  changed->assign = [to = std::weak_ptr(assignments)](const Scope& s, const Var& variable, const char* op,
                                                      const Output& value) {
    if (const std::shared_ptr<ReplicaAssignments> open = to.lock()) return open->Add(s, variable, op, value);
    s.UpdateStatus(InvalidArgument("variable ", variable.var_name(),
                                   " is assigned in the scope of a replica after the model function has ended"));
    return Operation(s, nullptr);
  };
  ScopeSettings settings = SettingsOf(scope.WithReuse(Reuse::kAuto));
  settings.prefix = TakeName(scope.WithoutOpName(), name);
  const Scope plain = ScopeAccess::Of(settings);
  const Output key =
      Op(plain.WithOpName("random_key"), "AddV2", {Op(plain, "Mul", {GlobalStep(scope), count}), number});
  if (!scope.ok()) return plain;
  changed->random_key = key.endpoint();
  changed->number = number;
  if (!weight.empty()) changed->weight = weight.endpoint();
  settings.replica = std::move(changed);
  return ScopeAccess::Of(std::move(settings));
}

Output OnlyWithExamples(const Scope& scope, const Var& variable, const char* op, const Output& value) {
  const std::shared_ptr<const ReplicaSettings>& replica = SettingsOf(scope).replica;
  if (replica == nullptr || !replica->weight || !scope.ok()) return value;
  const Output has = Op(scope, "Greater", {Output(scope, replica->weight), 0.0f});
  const Output otherwise =
      absl::string_view(op) == "AssignVariableOp" ? variable.Read(scope) : Op(scope, "ZerosLike", {value});
  return Op(scope, "SelectV2", {has, value, otherwise});
}

Output TreeSum(const Scope& scope, const std::vector<Output>& values, int first, ShardRange node) {
  if (node.size() == 1) return values[node.first - first];
  return Op(scope, "AddV2", {TreeSum(scope, values, first, node.left()), TreeSum(scope, values, first, node.right())});
}

std::string StableName(const ScopeSettings& settings) {
  const VariableNames* const names = settings.variable_names();
  return absl::StrCat(names == nullptr ? settings.prefix : names->prefix, "/", settings.op_name);
}

int64_t HashOfName(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return static_cast<int64_t>((hash ^ (hash >> 32)) % INT32_MAX) + 1;
}

Output UniformLike(const Scope& scope, const Output& like, std::optional<int64_t> op_seed) {
  const Output shape = Op(scope, "Shape", {like});
  const std::shared_ptr<const ReplicaSettings>& replica = SettingsOf(scope).replica;
  if (replica == nullptr || !replica->random_key) {
    const auto [seed, seed2] = scope.OpSeeds(op_seed);
    return Op(scope, "RandomUniform", {shape}, {{"dtype", like.dtype()}, {"seed", seed}, {"seed2", seed2}});
  }
  const int64_t own = HashOfName(absl::StrCat(StateOf(scope).random_seed.value_or(0), " ", op_seed.value_or(0), " ",
                                              StableName(SettingsOf(scope))));
  const Output key =
      Op(scope, "Pack", {InputList({Input(Tensor::Scalar<int64_t>(own)), Input(Output(scope, replica->random_key))})});
  return Op(scope, "StatelessRandomUniform", {shape, key}, {{"dtype", like.dtype()}});
}

}  // namespace millrace::api_internal
