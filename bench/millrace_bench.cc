// Millrace's side of bench/compare: runs the requested cases and prints one JSON line for each, in the format of
// bench/peers/common.py.
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/case.h"
#include "bench/chains.h"
#include "bench/conv_nets.h"
#include "bench/embedding.h"
#include "bench/input.h"
#include "bench/large_graph.h"
#include "bench/matmul_floor.h"
#include "bench/measure.h"
#include "bench/rnn.h"
#include "bench/sequence_nets.h"

namespace millrace::bench {
namespace {

// Measures calls of one compiled step without feeds.
double MicrosecondsOf(const Flags& flags, const Scope& scope, const std::vector<Output>& fetches,
                      const std::vector<Operation>& targets, const SessionOptions& options) {
  const Operation init = GlobalVariablesInitializer(scope);
  ClientSession session = Check(ClientSession::Create(scope, options));
  Check(session.Run(init));
  Step step = Check(session.MakeStep({}, fetches, targets));
  Tensors results;
  return 1e6 * MedianSeconds(flags.seconds, [&] { Check(step.callable().Run({}, &results)); });
}

void Null(const Flags& flags) {
  const Scope scope = Scope::NewRoot();
  const Operation nothing = ops::NoOp(scope);
  Emit(flags, "null", "us", MicrosecondsOf(flags, scope, {}, {nothing}, Options(flags)));
}

void Scalar(const Flags& flags) {
  const Scope scope = Scope::NewRoot();
  const Var v(scope, "v", 3.0f);
  Emit(flags, "scalar", "us", MicrosecondsOf(flags, scope, {v + 4.0f}, {}, Options(flags)));
}

// Rewrites are off, as on the other side, so that the chain is run as it is.
void Chain(const Flags& flags) {
  const Scope scope = Scope::NewRoot();
  const Var v(scope, "v", 0.001f);
  const Output x = v.Read(scope);
  Output y = x;
  for (int i = 0; i < 1000; ++i) y = y + x;
  SessionOptions options = Options(flags);
  options.passes = PassOptions::None();
  Emit(flags, "chain", "us", MicrosecondsOf(flags, scope, {y}, {}, options));
}

// Training steps per second of a perceptron with ReLU between its layers, feeds included.
double StepsPerSecond(const Flags& flags, const std::vector<int>& sizes, int rows, Optimizer& optimizer) {
  const Scope scope = Scope::NewRoot();
  const Output x = ops::Placeholder(scope, DType::kFloat, {.shape = {rows, sizes[0]}});
  const Output labels = ops::Placeholder(scope, DType::kInt32, {.shape = {rows}});
  Output h = x;
  for (size_t i = 1; i + 1 < sizes.size(); ++i) h = layers::Dense(scope, h, sizes[i], {.activation = ops::Relu});
  const Output logits = layers::Dense(scope, h, sizes.back());
  const Output loss = losses::SparseSoftmaxCrossEntropy(scope, labels, logits);
  const Operation train = optimizer.Minimize(scope, loss);
  const Operation init = GlobalVariablesInitializer(scope);
  ClientSession session = Check(ClientSession::Create(scope, Options(flags)));
  Check(session.Run(init));
  Step step = Check(session.MakeStep({x, labels}, {loss}, {train}));
  const Tensor feeds[] = {RandomFeatures(Shape({rows, sizes[0]})), RandomLabels(rows, sizes.back())};
  Tensors results;
  return Rate(flags.seconds, [&] { Check(step.callable().Run(feeds, &results)); });
}

const std::vector<int> kSmall = {784, 100, 10};
const std::vector<int> kLarge = {784, 1024, 1024, 10};

void MlpSgd(const Flags& flags) {
  optimizers::GradientDescent sgd({.learning_rate = 0.01});
  Emit(flags, "mlp_sgd", "steps/s", StepsPerSecond(flags, kSmall, 100, sgd));
}

void MlpAdam(const Flags& flags) {
  optimizers::Adam adam({.learning_rate = 0.001});
  Emit(flags, "mlp_adam", "steps/s", StepsPerSecond(flags, kSmall, 100, adam));
}

void MlpLarge(const Flags& flags) {
  const double before = ResidentMb();
  optimizers::GradientDescent sgd({.learning_rate = 0.01});
  const double rate = StepsPerSecond(flags, kLarge, 256, sgd);
  const double peak = PeakMb() - before;
  const double floor = MatMulFloorSeconds(kLarge, 256, flags.threads, flags.seconds);
  Emit(flags, "mlp_large", "steps/s", rate,
       absl::StrFormat(", \"peak_mb\": %.1f, \"matmul_share\": %.4g", peak, floor * rate));
}

void RnnCase(const Flags& flags) {
  const Scope scope = Scope::NewRoot();
  const Rnn rnn = BuildRnn(scope);
  const Operation init = GlobalVariablesInitializer(scope);
  ClientSession session = Check(ClientSession::Create(scope, Options(flags)));
  Check(session.Run(init));
  if (!flags.trace.empty()) WriteTrace(flags, session, {}, rnn.loss, rnn.train);
  Step step = Check(session.MakeStep({}, {rnn.loss}, {rnn.train}));
  Tensors results;
  Emit(flags, "rnn", "steps/s", Rate(flags.seconds, [&] { Check(step.callable().Run({}, &results)); }));
}

// From the bytes of a GraphDef to the result of its first run.
void Import(const Flags& flags) {
  std::ifstream in(flags.graph, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  pb::GraphDef def;
  if (bytes.empty() || !def.ParseFromString(bytes)) Check(DataLoss("cannot read a GraphDef from ", flags.graph));
  auto session = Check(Session::Create(Options(flags)));
  Check(session->Extend(std::move(def)));
  const double imported = seconds();
  Check(session->Run({{"x:0", Tensor::Scalar(0.5f)}}, {"result:0"}));
  Emit(flags, "import", "s", seconds(), absl::StrFormat(", \"import_s\": %.4g", imported));
}

int Main(int argc, char** argv) {
  const std::map<std::string, void (*)(const Flags&)> cases = {
      {"null", Null},          {"scalar", Scalar},          {"chain", Chain},   {"mlp_sgd", MlpSgd},
      {"mlp_adam", MlpAdam},   {"mlp_large", MlpLarge},     {"import", Import}, {"conv_mnist", ConvMnist},
      {"resnet20", ResNet20},  {"cifar_input", CifarInput}, {"rnn", RnnCase},   {"embedding", Embedding},
      {"chains_1m", Chains1M}, {"chains_64m", Chains64M},   {"lstm", LstmCase}, {"transformer", TransformerCase}};
  Flags flags;
  CLI::App app("Measures Millrace; prints one JSON line for each case. See bench/compare.");
  app.add_option("--cases", flags.cases,
                 "comma-separated, of: null scalar chain mlp_sgd mlp_adam mlp_large import "
                 "conv_mnist resnet20 cifar_input rnn lstm transformer embedding chains_1m chains_64m");
  app.add_option("--threads", flags.threads, "Threads of the session")->check(CLI::Range(1, 256));
  app.add_option("--seconds", flags.seconds, "Seconds to measure each case");
  app.add_option("--graph", flags.graph, "File with the GraphDef of case import");
  app.add_option("--trace", flags.trace,
                 "File for a Chrome trace of one step of conv_mnist, resnet20, rnn, lstm or transformer");
  app.add_option("--write-graph", flags.write_graph, "Only write the GraphDef of case import to this file");
  CLI11_PARSE(app, argc, argv);

  if (!flags.write_graph.empty()) {
    std::ofstream out(flags.write_graph, std::ios::binary);
    if (!LargeGraph().SerializeToOstream(&out)) Check(Internal("cannot write ", flags.write_graph));
    return 0;
  }
  if (flags.threads == 1) {
    // With one thread every side is bound to one core: the last one that this process may use.
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && CPU_COUNT(&one) == 0; --cpu) {
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    }
    sched_setaffinity(0, sizeof(one), &one);
  }
  const std::vector<std::string> names = absl::StrSplit(flags.cases, ',');
  for (const std::string& name : names) {
    const auto at = cases.find(name);
    if (at == cases.end()) Check(NotFound("there is no case '", name, "'"));
    at->second(flags);
  }
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) { return millrace::bench::Main(argc, argv); }
