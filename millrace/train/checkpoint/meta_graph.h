// The MetaGraphDef that is saved beside a checkpoint. Internal to train/.
#pragma once

#include "millrace/api/scope.h"
#include "millrace/base/status.h"
#include "millrace/proto/meta_graph.pb.h"

namespace millrace::train_internal {

// The graph, its collections (variables, global step, update ops, losses, summaries) and `saver`, in the form that
// TensorFlow's import_meta_graph reads. Returns the scope's error if building the graph failed.
StatusOr<::tensorflow::MetaGraphDef> MakeMetaGraph(const Scope& scope, const ::tensorflow::SaverDef& saver);

}  // namespace millrace::train_internal
