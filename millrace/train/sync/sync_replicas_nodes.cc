#include "millrace/train/sync/sync_replicas_nodes.h"

#include "absl/strings/str_cat.h"
#include "millrace/graph/device_name.h"

namespace millrace {

LocalVariable::LocalVariable(const Scope& scope, DType dtype, const std::string& shared_name) : dtype(dtype) {
  handle = Op(scope, "VarHandleOp", {},
              {{"dtype", dtype}, {"shape", PartialShape(std::vector<int64_t>{})}, {"shared_name", shared_name}});
}

LocalVariable LocalVariable::OfStep(const Scope& s, const Scope& home, const std::string& optimizer) {
  const Operation anchor = AddOp(s.WithOpName("worker"), "NoOp", {});
  const std::string worker = anchor.empty() ? "" : anchor.node()->requested_device();
  const StatusOr<DeviceName> device = DeviceName::Parse(worker);
  const std::string name = absl::StrCat(optimizer, "/local_step");
  if (anchor.empty() || (device.ok() && device->job && device->task)) {
    return LocalVariable(home.WithOpName("local_step"), DType::kInt64, name + worker);
  }
  return LocalVariable(s.WithOpName("local_step").ColocateWith(anchor), DType::kInt64, name);
}

Output LocalVariable::Read(const Scope& scope) const {
  return Op(scope.ColocateWith(handle), "ReadVariableOp", {handle}, {{"dtype", dtype}});
}
Operation LocalVariable::Assign(const Scope& scope, const Input& value) const {
  return AddOp(scope.ColocateWith(handle), "AssignVariableOp", {handle, value}, {{"dtype", dtype}});
}

void SyncReplicasNodes::AddReadiness(const Scope& s, const LocalVariable& began, const std::string& began_name,
                                     const std::vector<Output>& dropped) {
  chief_ready = UninitializedVariables(s.WithoutDevice().WithDevice(global_step.handle().node()->requested_device()));
  chief_began = Op(home, "VarIsInitializedOp", {began.handle});
  if (continues.empty()) continues = chief_began;
  // Workers wait for the chief also when another parameter server than that of the global step was started anew.
  const Output missing =
      Op(home, "Reshape",
         {Op(home, "Where", {Op(home, "LogicalNot", {Op(home, "Reshape", {continues, std::vector<int32_t>{1}})})}),
          std::vector<int32_t>{-1}});
  const Output names = Op(home, "GatherV2", {std::vector<std::string>{began_name}, missing, 0});
  worker_ready = Op(home.WithOpName("ready_for_local_init"), "ConcatV2", {InputList{chief_ready, names}, 0});
  num_dropped_per_variable = Stack(home.WithOpName("num_dropped_per_variable"), dropped);
  num_dropped = Op(home.WithOpName("num_dropped"), "Max", {num_dropped_per_variable, 0});
}

Output Stack(const Scope& scope, const std::vector<Output>& values) {
  return Op(scope, "Pack", {InputList(std::vector<Input>(values.begin(), values.end()))});
}

}  // namespace millrace
