// Networks that learn text: an LSTM and a Transformer.
#pragma once

#include "bench/case.h"

namespace millrace::bench {

// The sizes that every side uses.
inline constexpr int kCharacters = 64;
inline constexpr int kLstmUnits = 128, kLstmTime = 35, kLstmBatch = 32;
inline constexpr int kTransformerLayers = 4, kTransformerWidth = 256, kTransformerHeads = 4, kTransformerTime = 64,
                     kTransformerBatch = 16;

// One training step with Adam, feeds included: characters, embedding, the network, logits, cross-entropy.
void LstmCase(const Flags& flags);
// Layer norm first, causal attention, GELU by tanh between dense layers of four times the width, no dropout.
void TransformerCase(const Flags& flags);

}  // namespace millrace::bench
