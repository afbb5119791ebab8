// The parts of a graph that a training needs besides the training op: how variables are initialised, saved and checked.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "millrace/api/client_session.h"
#include "millrace/api/variable.h"
#include "millrace/base/clock.h"
#include "millrace/train/checkpoint/saver.h"

namespace millrace {

struct ScaffoldDefaults {
  // Whether Finalize creates a Saver if none is given.
  bool saver = true;
};

// A value type; copies share the saver. Finalize fills in each member that is empty with the default in its comment.
struct Scaffold {
  // Run by the chief if there is no checkpoint, followed by init_fn. Default: the initializers of all global variables.
  Operation init_op = {};
  ClientSession::Feeds init_feed = {};
  std::function<Status(ClientSession*)> init_fn = nullptr;
  // Each returns the names of what has no value yet, and no names once all is ready. Defaults: the uninitialised global
  // and local variables for ready_op, the global ones for ready_for_local_init_op.
  Output ready_op = {};
  Output ready_for_local_init_op = {};
  // Run in each session once ready_for_local_init_op returns no names. Default: the initializers of the local
  // variables and of the tables (api/lookup_table.h), or empty if there are none.
  Operation local_init_op = {};
  ClientSession::Feeds local_init_feed = {};
  // Returns a serialized Summary. Default: all summaries of the graph merged, or empty if there are none.
  Output summary_op = {};
  // Default: a Saver of all global variables, with these options.
  std::shared_ptr<Saver> saver = nullptr;
  SaverOptions saver_options = {};

  // Adds nodes to the graph, so call it when the model is complete and before a session exists. A second call does
  // nothing. Returns the scope's error if building the graph fails.
  Status Finalize(const Scope& scope, const ScaffoldDefaults& defaults = {});
  bool finalized = false;
};

}  // namespace millrace
