#include "millrace/saved_model/graph_attrs.h"
#include "millrace/saved_model/meta_graph.h"
#include "millrace/train/checkpoint/meta_graph.h"

namespace millrace {

StatusOr<pb::MetaGraphDef> ExportMetaGraph(const Scope& scope, const ExportMetaGraphOptions& options) {
  pb::SaverDef saver;
  if (options.saver != nullptr) saver = options.saver->saver_def();
  MR_ASSIGN_OR_RETURN(pb::MetaGraphDef meta, train_internal::MakeMetaGraph(scope, saver));
  if (options.saver == nullptr) meta.clear_saver_def();
  for (const auto& [name, values] : options.collections) {
    auto* const list = (*meta.mutable_collection_def())[name].mutable_node_list();
    for (const std::string& value : values) list->add_value(value);
  }
  if (options.clear_devices) {
    for (pb::NodeDef& node : *meta.mutable_graph_def()->mutable_node()) node.clear_device();
  }
  DescribeOps(&meta);
  if (options.strip_default_attrs) StripDefaultAttrs(&meta);
  return meta;
}

StatusOr<pb::MetaGraphDef> ReadMetaGraph(const std::string& path, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(files, path));
  pb::MetaGraphDef meta;
  if (!meta.ParseFromString(bytes))
    return DataLoss(path, " is not a MetaGraph, or it is truncated or damaged (", bytes.size(), " bytes)");
  return meta;
}

Status WriteMetaGraph(const pb::MetaGraphDef& meta, const std::string& path, FileSystem* files) {
  return ReplaceFile(files, path, meta.SerializeAsString());
}

}  // namespace millrace
