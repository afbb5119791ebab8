// Measures a GPU through a session: copies, a large matrix product, and the cost of a step.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "millrace/base/mutex.h"
#include "millrace/device/cuda/cuda_device.h"
#include "millrace/device/cuda_devices.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The best of `rounds` times of one call.
template <typename Fn>
double Best(int rounds, Fn&& fn) {
  double best = 1e30;
  for (int i = 0; i < rounds; ++i) {
    const double start = Seconds();
    fn();
    best = std::min(best, Seconds() - start);
  }
  return best;
}

Tensor Back(Gpu* gpu, const Tensor& there) {
  Notification done;
  Tensor back;
  gpu->CopyOut(there, [&](StatusOr<Tensor> result) {
    back = std::move(result).value();
    done.Notify();
  });
  done.Wait();
  return back;
}

void Copies(Gpu* gpu) {
  for (const int64_t bytes : {int64_t{4} << 10, int64_t{1} << 20, int64_t{256} << 20}) {
    Tensor host(DType::kFloat, Shape({bytes / 4}));
    std::memset(host.raw_data(), 0, bytes);
    Tensor there = gpu->CopyIn(host).value();
    const Tensor pinned = Back(gpu, there);
    const auto in = [&](const Tensor& from) {
      return Best(20, [&] {
        there = gpu->CopyIn(from).value();
        // Waits until the data has arrived, by fetching one element through the compute stream.
        GpuBufferOf(there)->AwaitOnCompute().IgnoreError();
        gpu->Synchronize().IgnoreError();
      });
    };
    const double from_heap = in(host), from_pinned = in(pinned);
    const double out = Best(20, [&] { Back(gpu, there); });
    std::printf(
        "copy %9lld bytes  in %7.2f GB/s (%8.1f us)  in, pinned %7.2f GB/s (%8.1f us)  out %7.2f GB/s (%8.1f us)\n",
        static_cast<long long>(bytes), bytes / from_heap / 1e9, from_heap * 1e6, bytes / from_pinned / 1e9,
        from_pinned * 1e6, bytes / out / 1e9, out * 1e6);
  }
}

// A chain of `products` matrix products; only the shape of the last one is fetched.
void Product(Gpu* gpu, DType dtype, int64_t n) {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/device:CPU:0";
  Tensor ones(DType::kFloat, Shape({n, n}));
  for (int64_t i = 0; i < n * n; ++i) ones.data<float>()[i] = static_cast<float>(i % 7) - 3;
  const Endpoint value =
      b.Cast(b.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({n, n})}}, "x"), dtype);
  b.device = "/device:GPU:0";
  const Endpoint v = b.Op("VarHandleOp", {}, {{"dtype", dtype}, {"shape", PartialShape({n, n})}}, "v");
  b.AddNode("AssignVariableOp", {v, value}, {}, "init");
  const Endpoint w = b.Op("ReadVariableOp", {v}, {{"dtype", dtype}}, "w");
  constexpr int kProducts = 10;
  Endpoint last = w;
  for (int i = 0; i < kProducts; ++i) last = b.Op("MatMul", {last, w});
  Node* const target = b.AddNode("Identity", {last}, {}, "target");
  auto session = Session::Create().value();
  if (const Status s = session->Extend(graph); !s.ok()) std::printf("%s\n", s.ToString().c_str());
  const auto init = session->Run({{"x", ones}}, {}, {"init"});
  if (!init.ok()) std::printf("%s\n", init.status().ToString().c_str());
  auto step = session->MakeCallable({.targets = {target->name()}}).value();
  std::vector<Tensor> none;
  const double time = Best(20, [&] {
    step->Run({}, &none).IgnoreError();
    gpu->Synchronize().IgnoreError();
  });
  std::printf("MatMul %lld %-8s %8.1f TFLOP/s\n", static_cast<long long>(n), DTypeName(dtype).data(),
              2.0 * n * n * n * kProducts / time / 1e12);
}

// A step that feeds and fetches four floats, and one that only launches.
void Steps() {
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/device:GPU:0";
  const Endpoint x = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({4})}}, "x");
  b.Op("AddV2", {x, x}, {}, "y");
  const Endpoint v = b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({4})}}, "v");
  const Endpoint one = b.Const(Tensor::Of<float>({1, 1, 1, 1}));
  b.AddNode("AssignVariableOp", {v, one}, {}, "init");
  b.AddNode("AssignAddVariableOp", {v, one}, {}, "add");
  auto session = Session::Create().value();
  session->Extend(graph).IgnoreError();
  session->RunTargets({"init"}).IgnoreError();
  auto fed = session->MakeCallable({.feeds = {"x"}, .fetches = {"y"}}).value();
  auto launched = session->MakeCallable({.targets = {"add"}}).value();
  std::vector<Tensor> results;
  const Tensor value = Tensor::Of<float>({1, 2, 3, 4});
  const auto mean = [](int n, auto&& fn) {
    fn();
    const double start = Seconds();
    for (int i = 0; i < n; ++i) fn();
    return (Seconds() - start) / n;
  };
  std::printf("step, copy in, add, copy out  %6.1f us\n",
              1e6 * mean(5000, [&] { fed->Run({value}, &results).IgnoreError(); }));
  std::printf("step, one update             %6.1f us\n",
              1e6 * mean(5000, [&] { launched->Run({}, &results).IgnoreError(); }));
}

int Main() {
  if (CudaDeviceCount() == 0) {
    std::printf("there is no GPU here: %s\n", WhyNoCudaDevices().c_str());
    return 0;
  }
  Gpu* const gpu = Gpu::Get(0, {}).value();
  std::printf("%s\n", gpu->name().c_str());
  Copies(gpu);
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kBFloat16}) Product(gpu, dtype, 4096);
  Steps();
  return 0;
}

}  // namespace
}  // namespace millrace

int main() { return millrace::Main(); }
