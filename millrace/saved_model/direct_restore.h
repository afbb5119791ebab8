// Restores the variables of a model in this process from mapped files, instead of by its own restore op. Internal to
// saved_model/.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/proto/meta_graph.pb.h"
#include "millrace/session/session.h"

namespace millrace {

namespace pb = ::tensorflow;

// Which tensors to feed with which values of the checkpoint, and what to run then.
struct DirectRestore {
  std::vector<std::string> tensors;
  std::vector<std::string> keys;
  std::vector<std::string> targets;
};

// Finds the ops that read the checkpoint for the saver's restore op: RestoreV2 in graphs of TensorFlow 1, whose outputs
// are fed instead; in those of TensorFlow 2 they are in a function, and assignments are added to the graph that do
// the same. Empty (no targets) if that op does anything else: then it must be run itself.
DirectRestore PlanDirectRestore(pb::MetaGraphDef* meta);

// The errors of BundleReader and of the run.
Status RunDirectRestore(const DirectRestore& plan, const std::string& checkpoint, Session* session);

}  // namespace millrace
