#include "bench/sequence_nets.h"

#include "bench/measure.h"

namespace millrace::bench {
namespace {

Tensor RandomCharacters(const Shape& shape, int seed) {
  Tensor t(DType::kInt32, shape);
  uint32_t state = static_cast<uint32_t>(seed);
  for (int32_t& c : t.flat<int32_t>()) {
    state = state * 1664525u + 1013904223u;
    c = static_cast<int32_t>((state >> 8) % kCharacters);
  }
  return t;
}

// Measures training steps of the network that `logits_of` makes of embedded characters.
void Measure(const Flags& flags, const char* name, const Shape& batch, int width,
             const std::function<Output(const Scope&, const Output&)>& logits_of) {
  const Scope scope = Scope::NewRoot();
  scope.SetRandomSeed(1);
  const PartialShape shape({batch.dim(0), batch.dim(1)});
  const Output inputs = ops::Placeholder(scope, DType::kInt32, {.shape = shape});
  const Output targets = ops::Placeholder(scope, DType::kInt32, {.shape = shape});
  const Var embedding(scope, "embedding", {kCharacters, width}, init::RandomNormal({.stddev = 0.02}));
  const Output logits = logits_of(scope, EmbeddingLookup(scope, {embedding}, inputs));
  const Output loss = losses::SequenceLoss(scope, logits, targets);
  const Operation train = optimizers::Adam({.learning_rate = 0.001}).Minimize(scope, loss);
  const Operation init = GlobalVariablesInitializer(scope);
  ClientSession session = Check(ClientSession::Create(scope, Options(flags)));
  Check(session.Run(init));
  const Tensor feeds[] = {RandomCharacters(batch, 1), RandomCharacters(batch, 2)};
  if (!flags.trace.empty()) {
    WriteTrace(flags, session, {{inputs, feeds[0]}, {targets, feeds[1]}}, loss, train);
  }
  Step step = Check(session.MakeStep({inputs, targets}, {loss}, {train}));
  Tensors results;
  Emit(flags, name, "steps/s", Rate(flags.seconds, [&] { Check(step.callable().Run(feeds, &results)); }));
}

Output TransformerBlock(const Scope& scope, Output x) {
  Output h = layers::LayerNormalization(scope, x, {.epsilon = 1e-5});
  x = x + layers::MultiHeadAttention(scope, h, h, {.heads = kTransformerHeads, .causal = true});
  h = layers::LayerNormalization(scope, x, {.epsilon = 1e-5});
  const auto gelu = [](const Scope& s, const Input& in) { return layers::Gelu(s, in, true); };
  return x +
         layers::Dense(scope, layers::Dense(scope, h, 4 * kTransformerWidth, {.activation = gelu}), kTransformerWidth);
}

}  // namespace

void LstmCase(const Flags& flags) {
  Measure(flags, "lstm", Shape({kLstmTime, kLstmBatch}), kLstmUnits, [](const Scope& scope, const Output& x) {
    const rnn::Sequence sequence = rnn::DynamicRnn(scope, rnn::LstmCell(kLstmUnits), x, {.time_major = true});
    return layers::Dense(scope, sequence.outputs, kCharacters);
  });
}

void TransformerCase(const Flags& flags) {
  Measure(flags, "transformer", Shape({kTransformerBatch, kTransformerTime}), kTransformerWidth,
          [](const Scope& scope, Output x) {
            x = x + layers::LearntPositions(scope, x, kTransformerTime);
            for (int i = 0; i < kTransformerLayers; ++i) {
              x = TransformerBlock(scope.SubScope(absl::StrCat("layer_", i)), x);
            }
            return layers::Dense(scope, layers::LayerNormalization(scope, x, {.epsilon = 1e-5}), kCharacters);
          });
}

}  // namespace millrace::bench
