// Lu: triangular factors of square matrices with row exchanges.
#include <numeric>

#include "millrace/ops/linalg/lapack.h"
#include "millrace/ops/linalg/matrix_batch.h"
#include "millrace/ops/linalg/matrix_shapes.h"

namespace millrace::linalg {
namespace {

using LuTypes = JoinTypes<LinalgTypes, Types<half>>::type;

class LuKernel : public Kernel {
 public:
  explicit LuKernel(KernelInit& init) {
    if (!DispatchType(LuTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const MatrixBatch a, MatrixBatch::Of(ctx.input(0)));
    if (a.rows != a.columns) {
      return InvalidArgument("Input matrix must be square, but got: ", a.rows, " != ", a.columns);
    }
    MR_ASSIGN_OR_RETURN(Tensor * lu, ctx.AllocateOutput(0, ctx.input(0).shape()));
    Shape p_shape = a.lead;
    p_shape.AddDim(a.rows);
    MR_ASSIGN_OR_RETURN(Tensor * p, ctx.AllocateOutput(1, p_shape));
    Status status;
    DispatchType(LuTypes{}, lu->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < a.count && a.rows > 0 && status.ok(); ++i) {
        std::vector<int64_t> order;
        status = One<T>(ctx.input(0), static_cast<int>(a.rows), i, lu, &order);
        if (status.ok()) StoreOrder(order, i, p);
      }
    });
    return status;
  }

 private:
  template <typename T>
  static Status One(const Tensor& in, int n, int64_t i, Tensor* lu, std::vector<int64_t>* order) {
    using C = WideType<T>;
    std::vector<C> columns(static_cast<size_t>(n) * n), rows(columns.size());
    std::vector<int> pivots(n);
    Transpose(WideAt<T>(in, i, n, n).data(), n, n, columns.data());
    if (Factor(n, columns.data(), pivots.data()) != 0) return InvalidArgument("Input is not invertible.");
    order->resize(n);
    std::iota(order->begin(), order->end(), 0);
    for (int k = 0; k < n; ++k) std::swap((*order)[k], (*order)[pivots[k] - 1]);
    Transpose(columns.data(), n, n, rows.data());
    StoreAt<T>(rows, i, lu);
    return absl::OkStatus();
  }
  static int Factor(int n, double* a, int* pivots) { return Getrf(n, n, a, n, pivots); }
  // LAPACK chooses complex pivots by |re| + |im|; by their modulus, the order of the rows is TensorFlow's.
  static int Factor(int n, std::complex<double>* a, int* pivots) {
    const auto at = [&](int row, int column) -> std::complex<double>& {
      return a[static_cast<size_t>(column) * n + row];
    };
    for (int k = 0; k < n; ++k) {
      int best = k;
      for (int r = k + 1; r < n; ++r) {
        if (std::abs(at(r, k)) > std::abs(at(best, k))) best = r;
      }
      pivots[k] = best + 1;
      if (at(best, k) == 0.0) return k + 1;
      for (int c = 0; c < n && best != k; ++c) std::swap(at(k, c), at(best, c));
      for (int r = k + 1; r < n; ++r) at(r, k) /= at(k, k);
      for (int c = k + 1; c < n; ++c) {
        for (int r = k + 1; r < n; ++r) at(r, c) -= at(r, k) * at(k, c);
      }
    }
    return 0;
  }
  static void StoreOrder(const std::vector<int64_t>& order, int64_t i, Tensor* p) {
    DispatchType(IndexTypes{}, p->dtype(), [&](auto tag) {
      using I = typename decltype(tag)::type;
      for (size_t k = 0; k < order.size(); ++k) {
        p->data<I>()[i * static_cast<int64_t>(order.size()) + static_cast<int64_t>(k)] = static_cast<I>(order[k]);
      }
    });
  }
};

Status LuShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape a, SquareMatrices(c, 0));
  c.set_output(0, a);
  PartialShape p = PartialShape::Scalar();
  if (!a.known_rank()) {
    p = PartialShape();
  } else {
    for (int i = 0; i + 1 < a.rank(); ++i) p.AddDim(a.dim(i));
  }
  c.set_output(1, p);
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(Lu)
    .Input("input: T")
    .Output("lu: T")
    .Output("p: output_idx_type")
    .Attr("T: {double, float, half, complex64, complex128}")
    .Attr("output_idx_type: {int32, int64} = DT_INT32")
    .Shape(LuShape)
    .Summary("The triangular factors of matrices whose rows are in the order p.");
MILLRACE_KERNEL(Lu, kCpu, LuKernel);

}  // namespace millrace::linalg
