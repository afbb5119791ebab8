// Constants that are determined by shapes alone.
#pragma once

#include <vector>

#include "millrace/graph/passes/roles.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Computes the outputs of a Shape, ShapeN, Size, Rank or BroadcastGradientArgs if the inferred shapes determine them.
// Returns false otherwise, and for any other node. `consumers` is ConsumersById of the graph.
bool ConstantsFromShapes(const Node& node, const std::vector<std::vector<Consumer>>& consumers, const Roles& roles,
                         const ShapeContext::ConstantLookup& constants, std::vector<Tensor>* outputs);

}  // namespace millrace
