// The nodes that a SyncReplicasOptimizer adds to a graph, shared with its hook. Internal to train/sync/.
#pragma once

#include "millrace/api/variable.h"

namespace millrace {

struct SyncReplicasNodes {
  Scope home;  // colocated with the global step
  Var global_step = {};
  int replicas_to_aggregate = 0;
  int total_num_replicas = 0;
  Output token_queue = {}, local_step = {};
  Output chief_ready = {}, worker_ready = {}, chief_began = {};
  Output num_dropped_per_variable = {}, num_dropped = {};
  size_t gradient_bytes = 0;  // of one update, as far as known
  // chief_init also answers for updates that no chief will complete; chief_resume does not.
  Operation chief_init = {}, chief_resume = {}, local_step_init = {}, update = {}, release = {}, pass_on = {};
};

}  // namespace millrace
