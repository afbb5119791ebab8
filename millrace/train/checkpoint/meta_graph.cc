#include "millrace/train/checkpoint/meta_graph.h"

#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"
#include "millrace/api/variable_slice.h"

namespace millrace::train_internal {

namespace pb = ::tensorflow;

namespace {

pb::VariableDef DefOf(const Var& variable) {
  pb::VariableDef def;
  def.set_variable_name(variable.handle().name());
  def.set_initial_value_name(variable.initial_value().name());
  def.set_initializer_name(variable.initializer().name());
  def.set_snapshot_name(variable.name());
  def.set_is_resource(!IsRef(variable.handle().endpoint().dtype()));
  def.set_trainable(variable.trainable());
  if (const VariableSlice* const slice = SliceOf(variable)) {
    pb::SaveSliceInfoDef* const info = def.mutable_save_slice_info_def();
    info->set_full_name(slice->full_name);
    for (const int64_t dim : slice->full_shape.dims()) info->add_full_shape(dim);
    for (const int64_t at : slice->offset) info->add_var_offset(at);
    for (const int64_t dim : slice->shape.dims()) info->add_var_shape(dim);
  }
  return def;
}

}  // namespace

StatusOr<pb::MetaGraphDef> MakeMetaGraph(const Scope& scope, const pb::SaverDef& saver) {
  pb::MetaGraphDef meta;
  MR_ASSIGN_OR_RETURN(*meta.mutable_graph_def(), scope.ToGraphDef());
  *meta.mutable_saver_def() = saver;
  meta.mutable_meta_info_def()->set_tensorflow_git_version("millrace");
  const auto collection = [&meta](const std::string& name) { return &(*meta.mutable_collection_def())[name]; };
  for (const Var& variable : GlobalVariables(scope)) {
    const std::string def = DefOf(variable).SerializeAsString();
    collection("variables")->mutable_bytes_list()->add_value(def);
    if (variable.trainable()) collection("trainable_variables")->mutable_bytes_list()->add_value(def);
  }
  for (const Var& variable : LocalVariables(scope))
    collection("local_variables")->mutable_bytes_list()->add_value(DefOf(variable).SerializeAsString());
  const auto& state = api_internal::StateOf(scope);
  if (state.global_step) {
    collection("global_step")
        ->mutable_bytes_list()
        ->add_value(DefOf(Var(scope, state.variables[*state.global_step])).SerializeAsString());
  }
  for (const Node* node : state.update_ops) collection("update_ops")->mutable_node_list()->add_value(node->name());
  for (const auto& loss : state.losses)
    collection("losses")->mutable_node_list()->add_value(Output(scope, loss.value).name());
  for (const Endpoint& loss : state.regularization_losses)
    collection("regularization_losses")->mutable_node_list()->add_value(Output(scope, loss).name());
  for (const Endpoint& summary : state.summaries)
    collection("summaries")->mutable_node_list()->add_value(Output(scope, summary).name());
  return meta;
}

}  // namespace millrace::train_internal
