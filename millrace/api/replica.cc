#include "millrace/api/replica.h"

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"

namespace millrace::api_internal {

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
