#include "bench/matmul_floor.h"

#include <omp.h>

#include <unordered_map>

#include "bench/measure.h"
#include "dnnl.hpp"

namespace millrace::bench {
namespace {

using Tag = dnnl::memory::format_tag;

// c[m,n] = a[m,k] * b[k,n]; a transposed operand is stored the other way round.
class Product {
 public:
  Product(const dnnl::engine& engine, int m, int k, int n, bool transpose_a, bool transpose_b) {
    const auto desc = [](int rows, int columns, bool transposed) {
      return dnnl::memory::desc({rows, columns}, dnnl::memory::data_type::f32, transposed ? Tag::ba : Tag::ab);
    };
    const dnnl::matmul::primitive_desc pd(
        dnnl::matmul::desc(desc(m, k, transpose_a), desc(k, n, transpose_b), desc(m, n, false)), engine);
    primitive_ = dnnl::matmul(pd);
    args_ = {{DNNL_ARG_SRC, Filled(pd.src_desc(), engine)},
             {DNNL_ARG_WEIGHTS, Filled(pd.weights_desc(), engine)},
             {DNNL_ARG_DST, Filled(pd.dst_desc(), engine)}};
  }
  void Run(dnnl::stream& stream) { primitive_.execute(stream, args_); }

 private:
  static dnnl::memory Filled(const dnnl::memory::desc& desc, const dnnl::engine& engine) {
    dnnl::memory memory(desc, engine);
    float* data = static_cast<float*>(memory.get_data_handle());
    for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) data[i] = 0.01f * static_cast<float>(i % 7);
    return memory;
  }

  dnnl::matmul primitive_;
  std::unordered_map<int, dnnl::memory> args_;
};

}  // namespace

double MatMulFloorSeconds(const std::vector<int>& sizes, int batch, int threads, double seconds) {
  omp_set_num_threads(threads);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  std::vector<Product> products;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const int in = sizes[i];
    const int out = sizes[i + 1];
    products.emplace_back(engine, batch, in, out, false, false);            // y = x * w
    products.emplace_back(engine, in, batch, out, true, false);             // dw = x^T * dy
    if (i > 0) products.emplace_back(engine, batch, out, in, false, true);  // dx = dy * w^T
  }
  return MedianSeconds(seconds, [&] {
    for (Product& product : products) product.Run(stream);
    stream.wait();
  });
}

}  // namespace millrace::bench
