// Constants that follow from shapes alone.
#pragma once

#include <vector>

#include "millrace/graph/passes/roles.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// The outputs of a Shape, ShapeN, Size, Rank or BroadcastGradientArgs whose value the inferred
// shapes determine. False for any other node. `consumers` is ConsumersById of the graph.
bool ConstantsFromShapes(const Node& node, const std::vector<std::vector<Consumer>>& consumers,
                         const Roles& roles, const ShapeContext::ConstantLookup& constants,
                         std::vector<Tensor>* outputs);

}  // namespace millrace
