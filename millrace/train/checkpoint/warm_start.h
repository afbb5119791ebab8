// Initialises variables from the checkpoint of another training.
//
//   WarmStart(scope, "pretrained", {.variables = {"encoder/.*"}});
//   Operation init = GlobalVariablesInitializer(scope);        // after it
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/api/scope.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

// Both functions replace the initializers of variables, so call them before GlobalVariablesInitializer, which then
// reads the checkpoint on the variables' tasks. A training that restores a checkpoint of its own is not affected.
// `checkpoint` is a prefix, or a directory for its newest checkpoint. Partitioned variables read their slices. On an
// error nothing is changed: NOT_FOUND names the variable and the tensor that the checkpoint lacks, INVALID_ARGUMENT
// names both with their shapes or types.

struct WarmStartOptions {
  // Regular expressions, matched at the beginning of a variable's name.
  std::vector<std::string> variables = {".*"};
  // Whether to restrict the matches to trainable variables.
  bool trainable_only = true;
  // From a variable's name to its name in the checkpoint, where the two differ.
  std::map<std::string, std::string> names_in_checkpoint = {};
  FileSystem* files = FileSystem::Posix();
};
Status WarmStart(const Scope& scope, const std::string& checkpoint, const WarmStartOptions& options = {});

// `assignments` maps names in the checkpoint to names of variables, {"w", "layer1/w"}, or whole scopes to scopes,
// {"encoder/", "model/encoder/"}. "/" stands for the whole checkpoint.
Status InitFromCheckpoint(const Scope& scope, const std::string& checkpoint,
                          const std::map<std::string, std::string>& assignments,
                          FileSystem* files = FileSystem::Posix());

}  // namespace millrace
