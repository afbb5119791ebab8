// A small Transformer that learns a text character by character, and writes some of its own at the end.
//
//   transformer_text --log_dir=/tmp/alice
//   millrace launch --ps 1 --workers 2 -- transformer_text --log_dir=/tmp/alice
#include "examples/text/language_model.h"

using namespace millrace;

namespace {

struct TransformerFlags {
  int64_t layers = 2;
  int64_t width = 64;
  int64_t heads = 4;
  double dropout = 0.1;
};

// Attention and two dense layers, each added to what came in.
Output Block(const Scope& scope, Output x, const Output& training, const TransformerFlags& flags) {
  Output h = layers::LayerNormalization(scope, x);
  h = layers::MultiHeadAttention(scope.WithOpName("attention"), h, h, {.heads = flags.heads, .causal = true});
  x = x + layers::Dropout(scope, h, flags.dropout, training);
  h = layers::LayerNormalization(scope, x);
  const auto gelu = [](const Scope& s, const Input& in) { return layers::Gelu(s, in, true); };
  h = layers::Dense(scope, h, 4 * flags.width, {.activation = gelu});
  h = layers::Dense(scope, h, flags.width);
  return x + layers::Dropout(scope, h, flags.dropout, training);
}

}  // namespace

int main(int argc, char** argv) {
  TextFlags flags;
  TransformerFlags shape;
  CLI::App app("Learns a text with a Transformer, one character after the other.", "transformer_text");
  app.option_defaults()->always_capture_default();
  app.add_option("--layers", shape.layers)->check(CLI::PositiveNumber);
  app.add_option("--width", shape.width, "Of a layer; a multiple of --heads")->check(CLI::PositiveNumber);
  app.add_option("--heads", shape.heads, "Attention heads of a layer")->check(CLI::PositiveNumber);
  app.add_option("--dropout", shape.dropout)->check(CLI::Range(0.0, 0.9));
  return TextMain(
      app, flags, argc, argv,
      [&](const Scope& scope, const Output& characters, const Output& training, int64_t num_characters) {
        const Var embedding(scope, "embedding", {num_characters, shape.width}, init::RandomNormal({.stddev = 0.02}));
        Output x = EmbeddingLookup(scope, {embedding}, characters);
        x = x + layers::LearntPositions(scope, x, flags.time_steps);
        for (int64_t i = 0; i < shape.layers && scope.ok(); ++i) {
          x = Block(scope.SubScope(absl::StrCat("layer_", i)), x, training, shape);
        }
        x = layers::LayerNormalization(scope, x);
        return layers::Dense(scope.WithOpName("logits"), x, num_characters);
      });
}
