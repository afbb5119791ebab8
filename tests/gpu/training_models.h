// The networks that gpu_training trains, each with the batches it is trained on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "millrace/millrace.h"

namespace millrace {

struct TrainingModel {
  std::vector<Output> feeds;
  Output loss;
  Operation train;
  // The tensors of one step, in the order of `feeds`; the same for the same step.
  std::function<std::vector<Tensor>(int64_t step)> batch;
};

struct NamedModel {
  const char* name;
  int64_t batch;  // examples in a step, unless fewer are wanted
  TrainingModel (*build)(const Scope& scope, int64_t batch);
};

// Every network whose ops are meant to run on a GPU: mlp and adam (784-100-10), conv (two convolutions with pools),
// resnet20, lstm (128 wide, 35 steps), transformer (2 layers of 128, 64 steps).
const std::vector<NamedModel>& TrainingModels();

}  // namespace millrace
