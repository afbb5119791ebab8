// Compares Millrace's matrix product with oneDNN's own under OpenMP, on one and two threads.
//
// The shapes are those of an MLP 784-100-10 with batch 100 and of one with layers of 1024 and batch 256,
// forward and backward. Counters give GFLOP/s.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <memory>
#include <unordered_map>
#include <vector>

#include "dnnl.hpp"
#include "millrace/base/thread_pool.h"
#include "millrace/ops/kernels/gemm.h"

namespace millrace {
namespace {

struct Operands {
  std::vector<float> a, b, c;
  explicit Operands(const GemmShape& s) : a(s.m * s.k), b(s.k * s.n), c(s.m * s.n) {
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 17) / 17 - 0.5f;
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 13) / 13 - 0.5f;
  }
};

GemmShape ShapeOf(const benchmark::State& state) {
  return {.m = state.range(1),
          .n = state.range(2),
          .k = state.range(3),
          .transpose_a = state.range(4) != 0,
          .transpose_b = state.range(5) != 0};
}

void SetRate(benchmark::State& state, const GemmShape& s) {
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * s.m * s.n * s.k, benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Millrace(benchmark::State& state) {
  const GemmShape shape = ShapeOf(state);
  Operands x(shape);
  std::unique_ptr<ThreadPool> pool;
  if (state.range(0) > 1) pool = std::make_unique<ThreadPool>("bench", state.range(0) - 1);
  const Gemm* gemm = Gemm::Get(shape);
  for (auto _ : state) {
    if (!gemm->Run(pool.get(), x.a.data(), x.b.data(), x.c.data()).ok()) state.SkipWithError("failed");
  }
  SetRate(state, shape);
}

void BM_OneDnn(benchmark::State& state) {
  using Dims = dnnl::memory::dims;
  constexpr auto kF32 = dnnl::memory::data_type::f32;
  const GemmShape s = ShapeOf(state);
  omp_set_num_threads(static_cast<int>(state.range(0)));
  Operands x(s);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc a({s.m, s.k}, kF32, s.transpose_a ? Dims{1, s.m} : Dims{s.k, 1});
  const dnnl::memory::desc b({s.k, s.n}, kF32, s.transpose_b ? Dims{1, s.k} : Dims{s.n, 1});
  const dnnl::memory::desc c({s.m, s.n}, kF32, Dims{s.n, 1});
  const dnnl::matmul product(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), engine));
  const std::unordered_map<int, dnnl::memory> args = {{DNNL_ARG_SRC, dnnl::memory(a, engine, x.a.data())},
                                                      {DNNL_ARG_WEIGHTS, dnnl::memory(b, engine, x.b.data())},
                                                      {DNNL_ARG_DST, dnnl::memory(c, engine, x.c.data())}};
  for (auto _ : state) product.execute(stream, args);
  SetRate(state, s);
}

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"threads", "m", "n", "k", "ta", "tb"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (int64_t threads : {1, 2}) {
    // MLP 784-100-10: activations, then gradients of weights and of activations.
    b->Args({threads, 100, 100, 784, 0, 0});
    b->Args({threads, 784, 100, 100, 1, 0});
    b->Args({threads, 100, 10, 100, 0, 0});
    b->Args({threads, 100, 10, 100, 1, 0});
    b->Args({threads, 100, 100, 10, 0, 1});
    // Layers of 1024.
    b->Args({threads, 256, 1024, 784, 0, 0});
    b->Args({threads, 784, 1024, 256, 1, 0});
    b->Args({threads, 256, 1024, 1024, 0, 0});
    b->Args({threads, 1024, 1024, 256, 1, 0});
    b->Args({threads, 256, 1024, 1024, 0, 1});
  }
}

BENCHMARK(BM_Millrace)->Apply(Shapes);
BENCHMARK(BM_OneDnn)->Apply(Shapes);

}  // namespace
}  // namespace millrace

BENCHMARK_MAIN();
