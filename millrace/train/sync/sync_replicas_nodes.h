// The nodes that a SyncReplicasOptimizer adds to a graph, shared with its hook. Internal to train/sync/.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/op_call.h"
#include "millrace/api/variable.h"

namespace millrace {

// A variable that lives as long as the cluster: it is not saved and has no initializer.
struct LocalVariable {
  LocalVariable(const Scope& scope, DType dtype, const std::string& shared_name);
  // The step of the worker of scope `s`. On the worker it would cost a round trip to the accumulators, so it is on the
  // task of the global step, `home`, under the worker's name if it has one.
  static LocalVariable OfStep(const Scope& s, const Scope& home, const std::string& optimizer);

  Output Read(const Scope& scope) const;
  Operation Assign(const Scope& scope, const Input& value) const;

  DType dtype;
  Output handle;
};

struct SyncReplicasNodes {
  Scope home;  // colocated with the global step
  Var global_step = {};
  int replicas_to_aggregate = 0;
  int total_num_replicas = 0;
  Output token_queue = {}, local_step = {};
  Output chief_ready = {}, worker_ready = {}, chief_began = {};
  // Whether all parameter servers have what an earlier session of a chief left there; if not set, chief_began.
  Output continues = {};
  Output num_dropped_per_variable = {}, num_dropped = {};
  size_t gradient_bytes = 0;  // of one update, as far as known
  // chief_init also answers for updates that no chief will complete; chief_resume does not.
  Operation chief_init = {}, chief_resume = {}, local_step_init = {}, update = {}, release = {}, pass_on = {};
  // In fixed order only: whether the local step has a value, and the step that has begun.
  bool fixed_order = false;
  Output local_step_is_set = {}, step_now = {};

  // Adds what tells whether workers may begin, and the counts of dropped gradients.
  void AddReadiness(const Scope& s, const LocalVariable& began, const std::string& began_name,
                    const std::vector<Output>& dropped);
};

// [n] of n scalars.
Output Stack(const Scope& scope, const std::vector<Output>& values);

}  // namespace millrace
