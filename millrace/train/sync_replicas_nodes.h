// The nodes of a SyncReplicasOptimizer, which its hooks share with it.
#pragma once

#include "millrace/train/sync_replicas_optimizer.h"

namespace millrace {

struct SyncReplicasOptimizer::Nodes {
  Scope home;  // beside the global step
  Var global_step = {};
  int replicas_to_aggregate = 0;
  int total_num_replicas = 0;
  Output token_queue = {}, local_step = {};
  Output chief_ready = {}, worker_ready = {}, chief_began = {};
  Output num_dropped_per_variable = {}, num_dropped = {};
  Operation chief_init = {}, local_step_init = {}, update = {}, release = {}, pass_on = {};
};

}  // namespace millrace
