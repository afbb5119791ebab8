// The text of the programs over lines compiles for an H200 and, run on the host, gives what the CPU's kernels give.
#include "millrace/ops/kernels/cuda/lines_program.h"

#include <limits>

#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/compile_testing.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/rows_program.h"

namespace millrace {
namespace {

TEST(LinesProgram, EveryProgramCompiles) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  for (const DType dtype : With(CudaReals(), {DType::kInt32, DType::kBool})) {
    ExpectCompilesWithoutSpills(LinesProgram::Best("ArgMaxBeforeFn", dtype, DType::kInt64));
    ExpectCompilesWithoutSpills(LinesProgram::Best("ArgMinBeforeFn", dtype, DType::kInt32));
    if (dtype != DType::kBool) ExpectCompilesWithoutSpills(LinesProgram::TopK(dtype, DType::kInt32));
  }
  for (const DType dtype : With(CudaNumbers(), {DType::kInt32})) {
    ExpectCompilesWithoutSpills(LinesProgram::Scan("AddFn", "Acc(0)", dtype));
    ExpectCompilesWithoutSpills(LinesProgram::Scan("MulFn", "Acc(1)", dtype));
  }
  for (const DType dtype : {DType::kInt16, DType::kInt64})
    ExpectCompilesWithoutSpills(LinesProgram::TopK(DType::kFloat, dtype));
  for (const DType dtype : {DType::kInt32, DType::kInt64}) ExpectCompilesWithoutSpills(LinesProgram::InTopK(dtype));
  for (const int bytes : {1, 2, 4, 8, 16}) {
    for (const DType index : {DType::kUInt8, DType::kInt8, DType::kInt32, DType::kInt64})
      ExpectCompilesWithoutSpills(LinesProgram::OneHot(bytes, index));
    ExpectCompilesWithoutSpills(LinesProgram::Band(bytes));
    ExpectCompilesWithoutSpills(LinesProgram::Put(bytes));
  }
}

// x[outer][n][inner].
struct LineCase {
  int64_t outer, n, inner;
  Shape shape() const { return Shape({outer, n, inner}); }
};
const std::vector<LineCase>& LineCases() {
  static const auto* const cases =
      new std::vector<LineCase>{{1, 1, 1}, {5, 10, 1}, {3, 7, 5}, {2, 100, 40}, {2, 3000, 1}, {1, 300, 2}};
  return *cases;
}

TEST(LinesProgram, FindsTheFirstBestElementAsTheCpu) {
  for (const DType dtype : {DType::kFloat, DType::kHalf, DType::kInt8, DType::kBool}) {
    for (const std::string op : {"ArgMax", "ArgMin"}) {
      HostProgram program(LinesProgram::Best(op + "BeforeFn", dtype, DType::kInt64), {LinesProgram::kBest});
      ASSERT_TRUE(program.ok());
      for (LineCase c : LineCases()) {
        SCOPED_TRACE(absl::StrCat(op, " of ", DTypeName(dtype), c.shape().ToString()));
        Tensor x = Noise(dtype, c.shape(), 3);
        if (dtype == DType::kFloat && c.n > 5) {
          x = x.Clone();
          for (const int64_t i : {0, 1, 6}) x.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
        }
        const Tensor want = OnCpu(op, {x, Tensor::Scalar(int32_t{1})}, {{"output_type", DType::kInt64}})[0];
        Tensor got(DType::kInt64, want.shape());
        int64_t lines = c.outer * c.inner;
        const void* from = x.raw_data();
        void* to = got.raw_data();
        const bool alone = c.inner == 1 && c.n > 1024;
        const int64_t per_block = c.inner > 1 ? 32 : alone ? 1 : 8;
        program.Launch(LinesProgram::kBest, {static_cast<unsigned>((lines + per_block - 1) / per_block)},
                       alone ? std::vector<unsigned>{256} : std::vector<unsigned>{32, 8},
                       {&lines, &c.n, &c.inner, &from, &to});
        ExpectSame(got, want);
      }
    }
  }
}

TEST(LinesProgram, RunningSumsAndProductsAreTheCpus) {
  for (const DType dtype : {DType::kFloat, DType::kBFloat16, DType::kInt64}) {
    for (const std::string op : {"Cumsum", "Cumprod"}) {
      const bool sum = op == "Cumsum";
      HostProgram program(LinesProgram::Scan(sum ? "AddFn" : "MulFn", sum ? "Acc(0)" : "Acc(1)", dtype),
                          {LinesProgram::kScanShort, LinesProgram::kScanLong});
      ASSERT_TRUE(program.ok());
      for (LineCase c : LineCases()) {
        for (int mode = 0; mode < 4; ++mode) {
          int exclusive = mode & 1, reverse = mode >> 1;
          SCOPED_TRACE(absl::StrCat(op, " of ", DTypeName(dtype), c.shape().ToString(), " mode ", mode));
          const Tensor x = Noise(dtype, c.shape(), 3);
          const Tensor want =
              OnCpu(op, {x, Tensor::Scalar(int32_t{1})}, {{"exclusive", exclusive != 0}, {"reverse", reverse != 0}})[0];
          int64_t lines = c.outer * c.inner;
          const void* from = x.raw_data();
          for (const char* kernel : {LinesProgram::kScanShort, LinesProgram::kScanLong}) {
            Tensor got(dtype, c.shape());
            void* to = got.raw_data();
            program.Launch(kernel, {2}, {256}, {&lines, &c.n, &c.inner, &exclusive, &reverse, &from, &to});
            ExpectNear(got, want);
          }
        }
      }
    }
  }
}

TEST(LinesProgram, TheLargestElementsAreTheCpusInTheirOrder) {
  for (const DType dtype : {DType::kFloat, DType::kHalf, DType::kInt64}) {
    HostProgram program(LinesProgram::TopK(dtype, DType::kInt32), {LinesProgram::kPlaces, LinesProgram::kSortPieces,
                                                                   LinesProgram::kMergeRuns, LinesProgram::kTake});
    ASSERT_TRUE(program.ok());
    for (auto [rows, width, k] : {std::array<int64_t, 3>{3, 5, 5}, {4, 256, 7}, {2, 257, 1}, {3, 1500, 1500}}) {
      SCOPED_TRACE(absl::StrCat(DTypeName(dtype), " ", rows, " x ", width));
      Tensor x = Noise(dtype, Shape({rows, width}), 3);
      if (dtype == DType::kFloat) {
        x = x.Clone();
        x.data<float>()[2] = x.data<float>()[width] = std::numeric_limits<float>::quiet_NaN();
      }
      const std::vector<Tensor> want = OnCpu("TopKV2", {x, Tensor::Scalar(static_cast<int32_t>(k))}, {}, 2);
      std::vector<int> places(rows * width), other(rows * width);
      const void* from = x.raw_data();
      void* order = places.data();
      LaunchElements(program, LinesProgram::kPlaces, {&rows, &width, &order});
      constexpr int64_t kBlock = RowsProgram::kSortedByBlock;
      program.Launch(LinesProgram::kSortPieces, {static_cast<unsigned>(rows * ((width + kBlock - 1) / kBlock))},
                     {kBlock}, {&rows, &width, &from, &order});
      for (int64_t run = kBlock; run < width; run *= 2) {
        void* merged = other.data();
        LaunchElements(program, LinesProgram::kMergeRuns, {&rows, &width, &run, &from, &order, &merged});
        std::swap(places, other);
        order = merged;
      }
      Tensor values(dtype, want[0].shape()), indices(DType::kInt32, want[1].shape());
      void *to_values = values.raw_data(), *to_indices = indices.raw_data();
      LaunchElements(program, LinesProgram::kTake, {&rows, &width, &k, &order, &from, &to_values, &to_indices});
      ExpectSame(values, want[0]);
      ExpectSame(indices, want[1]);
    }
  }
}

TEST(LinesProgram, TargetsAmongTheLargestAreTheCpus) {
  HostProgram program(LinesProgram::InTopK(DType::kInt32), {LinesProgram::kInTopK});
  ASSERT_TRUE(program.ok());
  for (auto [rows, width] : {std::pair<int64_t, int64_t>(13, 10), {3, 2000}}) {
    Tensor x = Noise(DType::kFloat, Shape({rows, width}), 3).Clone();
    x.data<float>()[width + 4] = std::numeric_limits<float>::infinity();
    Tensor targets(DType::kInt32, Shape({rows}));
    for (int64_t i = 0; i < rows; ++i) targets.data<int32_t>()[i] = static_cast<int32_t>(i * 7 % width);
    targets.data<int32_t>()[2] = -1;
    const std::vector<unsigned> threads = width > 1024 ? std::vector<unsigned>{256, 1} : std::vector<unsigned>{32, 8};
    const void *from = x.raw_data(), *which = targets.raw_data();
    for (int64_t k = 0; k <= width; k += width / 10) {
      const Tensor want = OnCpu("InTopK", {x, targets}, {{"k", k}})[0];
      Tensor got(DType::kBool, want.shape());
      void* to = got.raw_data();
      program.Launch(LinesProgram::kInTopK, {static_cast<unsigned>((rows + threads[1] - 1) / threads[1])}, threads,
                     {&rows, &width, &k, &from, &which, &to});
      ExpectSame(got, want);
    }
  }
}

TEST(LinesProgram, OneHotVectorsAreTheCpus) {
  const Tensor indices = Tensor::Of<int32_t>({2, 3}, {0, 3, 1, -1, 4, 2});
  const Tensor on = Tensor::Scalar(5.0f), off = Tensor::Scalar(-2.0f);
  HostProgram program(LinesProgram::OneHot(4, DType::kInt32), {LinesProgram::kOneHot});
  ASSERT_TRUE(program.ok());
  for (const int64_t axis : {0, 1, -1}) {
    const Tensor want = OnCpu("OneHot", {indices, Tensor::Scalar(int32_t{4}), on, off}, {{"axis", axis}})[0];
    Tensor got(DType::kFloat, want.shape());
    const int at = axis < 0 ? 2 : static_cast<int>(axis);
    int64_t outer = indices.shape().Product(0, at), depth = 4, inner = indices.shape().Product(at, 2);
    const void *from = indices.raw_data(), *lit = on.raw_data(), *dark = off.raw_data();
    void* to = got.raw_data();
    LaunchRows(program, LinesProgram::kOneHot, {&outer, &depth, &inner, &from, &lit, &dark, &to});
    ExpectSame(got, want);
  }
}

TEST(LinesProgram, BandsOfMatricesAreTheCpus) {
  const Tensor x = Noise(DType::kFloat, Shape({2, 5, 7}), 3);
  HostProgram program(LinesProgram::Band(4), {LinesProgram::kBand});
  ASSERT_TRUE(program.ok());
  for (int64_t lower : {-1, 0, 2, 5}) {
    for (int64_t upper : {-1, 0, 3, 7}) {
      const Tensor want = OnCpu("MatrixBandPart", {x, Tensor::Scalar(lower), Tensor::Scalar(upper)}, {})[0];
      Tensor got(DType::kFloat, want.shape());
      int64_t matrices = 2, rows = 5, columns = 7;
      const void* from = x.raw_data();
      void* to = got.raw_data();
      LaunchRows(program, LinesProgram::kBand, {&matrices, &rows, &columns, &lower, &upper, &from, &to});
      ExpectSame(got, want);
    }
  }
}

TEST(LinesProgram, RowsArePutWhereTheirTargetsSay) {
  HostProgram program(LinesProgram::Put(4), {LinesProgram::kPut});
  ASSERT_TRUE(program.ok());
  const Tensor x = Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6}), targets = Tensor::Of<int64_t>({3}, {3, -1, 0});
  Tensor got = Tensor::Of<float>({4, 2}, {0, 0, 0, 0, 0, 0, 0, 0});
  int64_t rows = 3, width = 2;
  const void *from = x.raw_data(), *where = targets.raw_data();
  void* to = got.raw_data();
  LaunchRows(program, LinesProgram::kPut, {&rows, &width, &where, &from, &to});
  ExpectSame(got, Tensor::Of<float>({4, 2}, {5, 6, 0, 0, 0, 0, 1, 2}));
}

}  // namespace
}  // namespace millrace
