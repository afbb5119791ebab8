// What a training needs of its graph beside the training op: how variables get their values, and how one sees that they have them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "millrace/api/client_session.h"
#include "millrace/api/variable.h"
#include "millrace/base/clock.h"
#include "millrace/train/saver.h"

namespace millrace {

struct ScaffoldDefaults {
  // Whether a Saver is made where none is given.
  bool saver = true;
};

// A value; copies share the saver. What is left empty gets its default by Finalize:
struct Scaffold {
  // Run by the chief when there is no checkpoint: all global variables' initializers. init_fn runs after it.
  Operation init_op = {};
  ClientSession::Feeds init_feed = {};
  std::function<Status(ClientSession*)> init_fn = nullptr;
  // Strings that name what has no value yet; none when all is ready. By default the global and local variables without one, and the global ones alone.
  Output ready_op = {};
  Output ready_for_local_init_op = {};
  // Run in each session when ready_for_local_init_op gives nothing: the local variables' initializers; none when there are no local variables.
  Operation local_init_op = {};
  ClientSession::Feeds local_init_feed = {};
  // A serialized Summary: all summaries of the graph, none when it has none.
  Output summary_op = {};
  // Of all global variables.
  std::shared_ptr<Saver> saver = nullptr;

  // Adds nodes to the graph, so call it when the model is complete and no session exists. A second time does nothing. The scope's error when building fails.
  Status Finalize(const Scope& scope, const ScaffoldDefaults& defaults = {});
  bool finalized = false;
};

}  // namespace millrace
