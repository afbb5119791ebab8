// Variables that were imported. Internal to saved_model/.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/scope.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/proto/meta_graph.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

// A read of a variable, by its handle or reference: one that the graph has, or a new one.
Endpoint ReadOf(const Scope& scope, Node* handle);

// Keras models that tf.saved_model.save wrote have two handles for each variable: the functions use the original, but
// what is restored is a copy, which the graph would initialize from the original. TensorFlow 2 joins the two by its
// Python objects. Here the functions get the copy, so that they use what is restored.
void UseRestoredCopies(pb::MetaGraphDef* meta);

// A variable of a TensorFlow 2 model. Its graph has no collections: the function that restores it says which handle has
// which key of the checkpoint, and the object graph which of them are trainable.
struct RestoredVariable {
  std::string handle;  // a node
  std::string key;     // in the checkpoint
  bool trainable = false;
};
// Without `trainable`, as the restore function has them; empty if there is no such function. `complete` tells whether
// it does nothing but assign these variables.
std::vector<RestoredVariable> VariablesOfRestoreFunction(const pb::MetaGraphDef& meta, bool* complete);
// Empty if the model is none of TensorFlow 2. `checkpoint` is the model's.
StatusOr<std::vector<RestoredVariable>> RestoredVariables(const pb::MetaGraphDef& meta, const std::string& checkpoint,
                                                          FileSystem* files = FileSystem::Posix());

// Makes them variables of the graph that the scope's prefix was imported with; initializers read the checkpoint.
Status AddVariables(const Scope& scope, const std::vector<RestoredVariable>& variables, const std::string& checkpoint);

}  // namespace millrace
