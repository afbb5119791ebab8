// The graph of resnet_cifar: training and inference with the same weights.
#pragma once

#include "examples/resnet_cifar/flags.h"
#include "millrace/millrace.h"

struct Model {
  // A training step: the images and labels of each of this worker's replicas, which share --batch_size images.
  std::vector<millrace::Output> feeds;
  millrace::Output loss, learning_rate;
  millrace::Operation train;
  millrace::Var global_step;
  // Inference on any number of images: how many there are, the sum of their losses, and how many are classified
  // correctly. If workers step together, they do this together too, with the elements of DistributeDataset.
  std::vector<millrace::Output> test_feeds;
  millrace::Output num_images, test_loss, num_correct;
};

// What a strategy divides among its replicas: a step's images, or if workers do not step together, those of a step of
// each.
int64_t GlobalBatch(const Flags& flags, const millrace::Strategy& strategy);

// Whether all workers evaluate, each some of the images, or only the chief.
bool EvaluateTogether(const millrace::Strategy* strategy);

// Without a strategy, all images of a step are one batch.
Model BuildModel(const millrace::Scope& scope, const Flags& flags, int64_t steps_per_epoch,
                 millrace::Strategy* strategy);
