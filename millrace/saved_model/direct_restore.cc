#include "millrace/saved_model/direct_restore.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/strip.h"
#include "millrace/graph/attr.h"
#include "millrace/io/mapped_bundle.h"
#include "millrace/saved_model/imported_variables.h"

namespace millrace {
namespace {

using Nodes = std::map<std::string, const pb::NodeDef*>;

std::string NameOfNode(std::string input) {
  if (!input.empty() && input[0] == '^') input.erase(0, 1);
  return input.substr(0, input.find(':'));
}

// The strings of a constant; empty if it is another node.
std::vector<std::string> ConstStrings(const Nodes& nodes, const std::string& input) {
  const auto found = nodes.find(NameOfNode(input));
  if (found == nodes.end() || found->second->op() != "Const" || !found->second->attr().contains("value")) return {};
  const StatusOr<Tensor> value = AttrAs<Tensor>(found->second->attr().at("value"));
  if (!value.ok() || value->dtype() != DType::kString) return {};
  return {value->data<std::string>(), value->data<std::string>() + value->num_elements()};
}

// The RestoreV2 ops that the restore op depends on.
std::vector<const pb::NodeDef*> RestoresBefore(const Nodes& nodes, const std::string& restore) {
  std::vector<const pb::NodeDef*> found;
  std::set<std::string> seen = {restore};
  std::vector<std::string> pending = {restore};
  while (!pending.empty()) {
    const auto at = nodes.find(pending.back());
    pending.pop_back();
    if (at == nodes.end()) continue;
    if (at->second->op() == "RestoreV2") found.push_back(at->second);
    for (const std::string& input : at->second->input()) {
      if (seen.insert(NameOfNode(input)).second) pending.push_back(NameOfNode(input));
    }
  }
  return found;
}

void AddAttr(pb::NodeDef* node, const char* name, DType dtype) {
  (*node->mutable_attr())[name].set_type(static_cast<pb::DataType>(dtype));
}

DirectRestore PlanFunction(pb::MetaGraphDef* meta, const Nodes& nodes) {
  DirectRestore plan;
  bool complete = false;
  const std::vector<RestoredVariable> variables = VariablesOfRestoreFunction(*meta, &complete);
  if (!complete) return plan;
  std::vector<pb::NodeDef> added;
  for (const RestoredVariable& variable : variables) {
    const auto handle = nodes.find(variable.handle);
    if (handle == nodes.end() || handle->second->op() != "VarHandleOp" || !handle->second->attr().contains("dtype"))
      return DirectRestore();
    const auto dtype = static_cast<DType>(handle->second->attr().at("dtype").type());
    pb::NodeDef& value = added.emplace_back();
    value.set_name(absl::StrCat("saved_model_restore/", plan.keys.size(), "/value"));
    value.set_op("Placeholder");
    value.set_device(handle->second->device());
    AddAttr(&value, "dtype", dtype);
    pb::NodeDef& assign = added.emplace_back();
    assign.set_name(absl::StrCat("saved_model_restore/", plan.keys.size(), "/assign"));
    if (nodes.contains(assign.name()) || nodes.contains(added[added.size() - 2].name())) return DirectRestore();
    assign.set_op("AssignVariableOp");
    assign.set_device(handle->second->device());
    assign.add_input(variable.handle);
    assign.add_input(added[added.size() - 2].name());
    AddAttr(&assign, "dtype", dtype);
    plan.tensors.push_back(assign.input(1) + ":0");
    plan.targets.push_back(assign.name());
    plan.keys.push_back(variable.key);
  }
  for (pb::NodeDef& node : added) meta->mutable_graph_def()->add_node()->Swap(&node);
  return plan;
}

}  // namespace

DirectRestore PlanDirectRestore(pb::MetaGraphDef* meta) {
  Nodes nodes;
  for (const pb::NodeDef& node : meta->graph_def().node()) nodes[node.name()] = &node;
  const auto restore = nodes.find(meta->saver_def().restore_op_name());
  if (restore == nodes.end()) return {};
  if (restore->second->attr().contains("f")) return PlanFunction(meta, nodes);
  DirectRestore plan;
  for (const pb::NodeDef* node : RestoresBefore(nodes, restore->first)) {
    if (node->input_size() < 3) return {};
    const std::vector<std::string> names = ConstStrings(nodes, node->input(1)),
                                   slices = ConstStrings(nodes, node->input(2));
    // Parts of partitioned variables are left to the op.
    if (names.empty() || names.size() != slices.size() ||
        std::any_of(slices.begin(), slices.end(), [](const std::string& slice) { return !slice.empty(); }))
      continue;
    for (size_t i = 0; i < names.size(); ++i) {
      plan.tensors.push_back(absl::StrCat(node->name(), ":", i));
      plan.keys.push_back(names[i]);
    }
  }
  if (!plan.keys.empty()) plan.targets = {restore->first};
  return plan;
}

Status RunDirectRestore(const DirectRestore& plan, const std::string& checkpoint, Session* session) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(FileSystem::Posix(), checkpoint));
  std::vector<Tensor> values;
  {
    ThreadPool pool("restore", static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)));
    MR_ASSIGN_OR_RETURN(values, ReadMapped(*reader, plan.keys, &pool));
  }
  std::vector<Feed> feeds;
  for (size_t i = 0; i < plan.keys.size(); ++i) feeds.emplace_back(plan.tensors[i], std::move(values[i]));
  return session->Run(feeds, {}, plan.targets).status();
}

}  // namespace millrace
