#include "bench/chains.h"

#include <cstring>
#include <functional>
#include <thread>

#include "absl/strings/str_format.h"
#include "bench/measure.h"
#include "millrace/base/thread_pool.h"

namespace millrace::bench {
namespace {

constexpr int64_t kColumns = 1024;

Endpoint Softmax(GraphBuilder& b, Endpoint x) { return b.Op("Softmax", {x}); }

Endpoint LastMean(GraphBuilder& b, Endpoint x) { return b.Op("Mean", {x, b.Ints({-1})}, {{"keep_dims", true}}); }

Endpoint LayerNorm(GraphBuilder& b, Endpoint x) {
  Tensor ones(DType::kFloat, Shape({kColumns}));
  std::fill_n(ones.data<float>(), kColumns, 1.0f);
  const Endpoint centered = b.Sub(x, LastMean(b, x));
  const Endpoint variance = LastMean(b, b.Op("Square", {centered}));
  const Endpoint scale = b.Op("Rsqrt", {b.Add(variance, b.Scalar<float>(1e-5f))});
  const Endpoint gamma = b.Const(ones), beta = b.Const(ones);
  return b.Add(b.Mul(b.Mul(centered, scale), gamma), beta);
}

Endpoint GeluTanh(GraphBuilder& b, Endpoint x) {
  const Endpoint cube = b.Op("Pow", {x, b.Scalar<float>(3)});
  const Endpoint inner = b.Mul(b.Scalar<float>(0.79788456f), b.Add(x, b.Mul(b.Scalar<float>(0.044715f), cube)));
  return b.Mul(b.Mul(b.Scalar<float>(0.5f), x), b.Add(b.Scalar<float>(1), b.Op("Tanh", {inner})));
}

Endpoint GeluErf(GraphBuilder& b, Endpoint x) {
  const Endpoint erf = b.Op("Erf", {b.Div(x, b.Scalar<float>(1.41421356f))});
  return b.Mul(b.Mul(b.Scalar<float>(0.5f), x), b.Add(b.Scalar<float>(1), erf));
}

// Seconds to copy n floats on the threads of a session, the lower bound of every chain.
double CopySeconds(const Flags& flags, int64_t n) {
  Tensor from(DType::kFloat, Shape({n})), to(DType::kFloat, Shape({n}));
  std::memset(from.raw_data(), 1, from.TotalBytes());
  std::memset(to.raw_data(), 1, to.TotalBytes());
  ThreadPool pool("copy", flags.threads - 1);
  const int64_t grain = (n + flags.threads - 1) / flags.threads;
  return MedianSeconds(flags.seconds / 2, [&] {
    pool.ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data<float>() + begin, from.data<float>() + begin, (end - begin) * sizeof(float));
    });
  });
}

void Chain(const Flags& flags, const std::string& name, int64_t n, double copy_seconds,
           Endpoint (*make)(GraphBuilder&, Endpoint)) {
  auto session = Check(Session::Create(Options(flags)));
  Graph graph;
  GraphBuilder b(&graph);
  const int32_t rows = static_cast<int32_t>(n / kColumns);
  const Endpoint x =
      b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({rows, kColumns})}}, "x");
  const Node* init = b.AddNode(
      "AssignVariableOp", {x, b.Op("RandomStandardNormal", {b.Ints({rows, kColumns})}, {{"dtype", DType::kFloat}})});
  const Endpoint y = make(b, b.Op("ReadVariableOp", {x}, {{"dtype", DType::kFloat}}));
  Check(b.status());
  Check(session->Extend(ExportGraphDef(graph)));
  Check(session->RunTargets({init->name()}));
  auto step = Check(session->MakeCallable({.targets = {y.node->name()}}));
  std::vector<Tensor> results;
  const double seconds = MedianSeconds(flags.seconds, [&] { Check(step->Run({}, &results)); });
  Emit(flags, name.c_str(), "us", 1e6 * seconds,
       absl::StrFormat(", \"copy_us\": %.6g, \"of_copy\": %.3f", 1e6 * copy_seconds, copy_seconds / seconds));
}

void Chains(const Flags& flags, const std::string& suffix, int64_t n) {
  const double copy = CopySeconds(flags, n);
  Chain(flags, "softmax_" + suffix, n, copy, Softmax);
  Chain(flags, "layer_norm_" + suffix, n, copy, LayerNorm);
  Chain(flags, "gelu_tanh_" + suffix, n, copy, GeluTanh);
  Chain(flags, "gelu_erf_" + suffix, n, copy, GeluErf);
}

}  // namespace

void Chains1M(const Flags& flags) { Chains(flags, "1m", 1 << 20); }
void Chains64M(const Flags& flags) { Chains(flags, "64m", 64 << 20); }

}  // namespace millrace::bench
