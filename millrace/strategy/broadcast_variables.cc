#include "millrace/strategy/broadcast_variables.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "millrace/api/variable.h"
#include "millrace/strategy/shard_reducer.h"

namespace millrace {
namespace {

class BroadcastVariablesHook : public SessionRunHook {
 public:
  explicit BroadcastVariablesHook(BroadcastHookOptions options) : options_(std::move(options)) {}
  Status Begin(const Scope& scope) override {
    broadcast_ = BroadcastGlobalVariables(scope, options_.root);
    if (options_.after != nullptr && scope.ok()) {
      if (const std::vector<Operation> more = options_.after(scope); !more.empty()) after_ = Group(scope, more);
    }
    return scope.status();
  }
  Status AfterCreateSession(ClientSession* session, Coordinator*) override {
    MR_RETURN_IF_ERROR(session->Run(broadcast_));
    return after_.empty() ? absl::OkStatus() : session->Run(after_);
  }
  bool GivesValues() const override { return !options_.is_root; }
  bool StepsTogether() const override { return true; }

 private:
  const BroadcastHookOptions options_;
  Operation broadcast_, after_;
};

}  // namespace

Operation BroadcastGlobalVariables(const Scope& scope, int root) {
  const Scope s = scope.ForComposite("broadcast_variables");
  std::map<DType, std::vector<Var>> by_type;
  for (const Var& variable : GlobalVariables(scope)) by_type[variable.dtype()].push_back(variable);
  std::vector<Operation> assigned;
  for (const auto& [dtype, variables] : by_type) {
    if (!IsPlain(dtype)) {
      s.UpdateStatus(InvalidArgument("variable ", variables[0].var_name(), " is ", DTypeName(dtype),
                                     ", which workers cannot exchange"));
      return Operation(s, nullptr);
    }
    std::vector<Output> values;
    for (const Var& variable : variables) values.push_back(variable.Read(s));
    const std::vector<Output> received =
        BroadcastTensors(s,
                         absl::StrCat("values of ", variables[0].var_name(), " to ", variables.back().var_name(), ", ",
                                      variables.size(), " variables"),
                         values, root);
    if (!s.ok()) return Operation(s, nullptr);
    for (size_t i = 0; i < variables.size(); ++i) assigned.push_back(variables[i].Assign(s, received[i]));
  }
  return Group(s.WithOpName("all"), assigned);
}

std::shared_ptr<SessionRunHook> NewBroadcastVariablesHook(BroadcastHookOptions options) {
  return std::make_shared<BroadcastVariablesHook>(std::move(options));
}

}  // namespace millrace
