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
  // Inference on any number of images: the sum of their losses, and how many are classified correctly.
  millrace::Output test_images, test_labels, test_loss, num_correct;
};

// Without a strategy, all images of a step are one batch.
Model BuildModel(const millrace::Scope& scope, const Flags& flags, int64_t steps_per_epoch,
                 millrace::Strategy* strategy);
