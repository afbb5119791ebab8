// What feature columns make of the features of a batch: the input of a network, and a linear model.
#pragma once

#include <vector>

#include "millrace/api/embedding.h"
#include "millrace/estimator/feature_columns/parse_examples.h"

namespace millrace {

struct InputLayerOptions {
  bool trainable = true;
};
// [batch, width of all columns], in the order of the columns' names; the columns are dense. A feature is a tensor
// [batch] or [batch, ...], or a sparse one (SetSparseFeature). Variables are "input_layer/NAME/embedding_weights",
// partitioned by the scope (Scope::WithPartitioner). The scope's error names the column: NOT_FOUND if there is no such
// feature, INVALID_ARGUMENT if it has another type or shape, or if a column is not dense.
Output InputLayer(const Scope& scope, const OutputMap& features, const std::vector<FeatureColumn>& columns,
                  const InputLayerOptions& options = {});

struct LinearModelOptions {
  int64_t units = 1;
  // Of several ids: of sum, mean and sqrtn.
  Combiner sparse_combiner = Combiner::kSum;
  bool trainable = true;
};
// [batch, units]: the weighted sum of the columns, which are dense or categorical, and a bias. Variables are
// "linear_model/NAME/weights" and "linear_model/bias_weights", from zeros.
Output LinearModel(const Scope& scope, const OutputMap& features, const std::vector<FeatureColumn>& columns,
                   const LinearModelOptions& options = {});

struct SequenceInput {
  Output input = {};            // [batch, steps, width of all columns]
  Output sequence_length = {};  // int64 [batch]
};
// The same for columns of sequences. A step fails if the columns disagree about the length of an example.
SequenceInput SequenceInputLayer(const Scope& scope, const OutputMap& features,
                                 const std::vector<FeatureColumn>& columns, const InputLayerOptions& options = {});

// Values of `columns` computed once for a batch and used by several layers, as in a wide-and-deep model.
class FeatureTensors;
std::shared_ptr<FeatureTensors> MakeFeatureTensors(const OutputMap& features);
Output InputLayer(const Scope& scope, FeatureTensors& features, const std::vector<FeatureColumn>& columns,
                  const InputLayerOptions& options = {});
Output LinearModel(const Scope& scope, FeatureTensors& features, const std::vector<FeatureColumn>& columns,
                   const LinearModelOptions& options = {});

}  // namespace millrace
