// Variables that begin with values of another training's checkpoint.
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

// Both change how variables are initialised, so that GlobalVariablesInitializer, built after them, reads the checkpoint where the variables are; a
// training that is restored from a checkpoint of its own is not touched. `checkpoint` is a prefix, or a directory for its newest. Parts of
// partitioned variables take their slices. Nothing is changed by an error: NOT_FOUND names the variable and the tensor that the checkpoint lacks,
// INVALID_ARGUMENT both with their shapes or types.

struct WarmStartOptions {
  // Regular expressions, matched from the beginning of a variable's name.
  std::vector<std::string> variables = {".*"};
  // Whether only those are meant that optimizers change.
  bool trainable_only = true;
  // What variables, by their names, are called in the checkpoint, where that is something else.
  std::map<std::string, std::string> names_in_checkpoint = {};
  FileSystem* files = FileSystem::Posix();
};
Status WarmStart(const Scope& scope, const std::string& checkpoint, const WarmStartOptions& options = {});

// From names in the checkpoint to names of variables, {"w", "layer1/w"}; or from scopes to scopes, {"encoder/", "model/encoder/"}, all variables of which
// are meant; "/" is all of the checkpoint.
Status InitFromCheckpoint(const Scope& scope, const std::string& checkpoint, const std::map<std::string, std::string>& assignments,
                          FileSystem* files = FileSystem::Posix());

}  // namespace millrace
