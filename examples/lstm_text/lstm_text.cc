// An LSTM that learns a text character by character, and writes some of its own at the end.
//
//   lstm_text --log_dir=/tmp/alice
//   millrace launch --ps 1 --workers 2 -- lstm_text --log_dir=/tmp/alice
#include "examples/text/language_model.h"

using namespace millrace;

int main(int argc, char** argv) {
  TextFlags flags;
  int64_t hidden_units = 128, layers = 1;
  double keep_prob = 1;
  CLI::App app("Learns a text with an LSTM, one character after the other.", "lstm_text");
  app.option_defaults()->always_capture_default();
  app.add_option("--hidden_units", hidden_units, "Units of a layer")->check(CLI::PositiveNumber);
  app.add_option("--layers", layers, "Layers of LSTM cells")->check(CLI::PositiveNumber);
  app.add_option("--keep_prob", keep_prob, "Probability of keeping a layer's output in training")
      ->check(CLI::Range(0.01, 1.0));
  return TextMain(app, flags, argc, argv,
                  [&](const Scope& scope, const Output& characters, const Output& training, int64_t num_characters) {
                    const Var embedding(scope, "embedding", {num_characters, hidden_units}, init::RandomUniform());
                    std::vector<rnn::CellPtr> cells;
                    for (int64_t i = 0; i < layers; ++i) {
                      cells.push_back(rnn::DropoutWrapper(rnn::LstmCell(hidden_units),
                                                          {.output_keep_prob = keep_prob, .training = training}));
                    }
                    const Output words = EmbeddingLookup(scope, {embedding}, characters);
                    const rnn::Sequence sequence = rnn::DynamicRnn(scope, rnn::MultiRnnCell(cells), words);
                    return layers::Dense(scope.WithOpName("logits"), sequence.outputs, num_characters);
                  });
}
