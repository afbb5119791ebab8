// The text of the programs over rows that indices choose compiles for an H200 and, run on the host, gives every bit of
// what the CPU's kernels give.
#include "millrace/ops/kernels/cuda/rows_program.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/compile_testing.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"
#include "millrace/ops/kernels/cuda/gpu_rows.h"

namespace millrace {
namespace {

const std::vector<DType>& IndexTypes() {
  static const auto* const types = new std::vector<DType>{DType::kInt16, DType::kInt32, DType::kInt64};
  return *types;
}

TEST(RowsProgram, GathersAndSortingCompile) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  for (const int bytes : {1, 2, 4, 8, 16}) {
    for (const DType index : IndexTypes()) ExpectCompilesWithoutSpills(RowsProgram::Gather(bytes, index));
    ExpectCompilesWithoutSpills(RowsProgram::Fill(bytes));
  }
  for (const DType index : IndexTypes()) ExpectCompilesWithoutSpills(RowsProgram::Slots(index));
  ExpectCompilesWithoutSpills(RowsProgram::Slots(DType::kUInt16));
  ExpectCompilesWithoutSpills(RowsProgram::Sort());
}

TEST(RowsProgram, UpdatesCompileForEveryType) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  for (const DType dtype : With(CudaNumbers(), {DType::kInt32})) {
    for (const char* combine : {"x", "AddFn()(a, x)", "SubFn()(a, x)", "MulFn()(a, x)"})
      ExpectCompilesWithoutSpills(RowsProgram::Update(combine, true, dtype));
  }
  ExpectCompilesWithoutSpills(RowsProgram::Update("AddFn()(a, x)", true, DType::kBool));
  for (const DType dtype : With(CudaReals(), {DType::kInt32})) {
    for (const char* combine :
         {"LesserOfFn()(a, x)", "GreaterOfFn()(a, x)", "LesserOfFn()(x, a)", "GreaterOfFn()(x, a)"})
      ExpectCompilesWithoutSpills(RowsProgram::Update(combine, false, dtype));
  }
  for (const DType dtype : CudaRealFloats())
    ExpectCompilesWithoutSpills(RowsProgram::Update("DivideFn()(a, x)", true, dtype));
}

// Small whole numbers below `limit`, some of them equal.
Tensor Indices(DType dtype, const Shape& shape, int64_t limit, uint32_t seed) {
  Tensor wide(DType::kInt64, shape);
  uint32_t state = seed;
  for (int64_t& x : wide.flat<int64_t>()) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<int64_t>(state >> 8) % limit;
  }
  return OnCpu("Cast", {wide}, {{"DstT", dtype}})[0];
}

// As GpuGather::Run does it.
Tensor Gather(const Tensor& params, const Tensor& indices, GatherForm form, int64_t inner, const Shape& shape) {
  Tensor got(params.dtype(), shape);
  const int64_t element = static_cast<int64_t>(SizeOf(params.dtype()));
  const void *from = params.raw_data(), *at = indices.raw_data();
  void* to = got.raw_data();
  const int bytes = WidestElement(inner * element, {from, to});
  int64_t rows = got.num_elements() / inner, columns = inner * element / bytes;
  HostProgram program(RowsProgram::Gather(bytes, indices.dtype()), {RowsProgram::kGather});
  EXPECT_TRUE(program.ok());
  if (program.ok()) LaunchRows(program, RowsProgram::kGather, {&form, &rows, &columns, &from, &at, &to});
  return got;
}

struct GatherCase {
  std::vector<int64_t> params, indices;
  int32_t axis;
  int64_t batch_dims;
};

TEST(RowsProgram, GathersAsTheCpu) {
  const std::vector<GatherCase> cases = {{{7}, {5}, 0, 0},
                                         {{9, 4}, {3, 2}, 0, 0},
                                         {{5, 6, 3}, {4}, 1, 0},
                                         {{2, 5, 3}, {2, 4}, 1, 1},
                                         {{2, 3, 5, 2}, {2, 7}, 2, 1}};
  for (const DType dtype : {DType::kFloat, DType::kHalf, DType::kBool, DType::kComplex128}) {
    for (const DType index : {DType::kInt32, DType::kInt64}) {
      for (const GatherCase& c : cases) {
        const Tensor params = Noise(dtype, Shape(c.params), 3);
        const Tensor indices = Indices(index, Shape(c.indices), c.params[c.axis], 5);
        SCOPED_TRACE(absl::StrCat(DTypeName(dtype), params.shape().ToString(), " axis ", c.axis));
        const Tensor want =
            OnCpu("GatherV2", {params, indices, Tensor::Scalar(c.axis)}, {{"batch_dims", c.batch_dims}})[0];
        const Shape& p = params.shape();
        const int batch = static_cast<int>(c.batch_dims);
        const GatherForm form{.outer = p.Product(batch, c.axis),
                              .axis = p.dim(c.axis),
                              .count = indices.shape().Product(batch, indices.rank()),
                              .index = RowIndex::Of(p.dim(c.axis))};
        ExpectSame(Gather(params, indices, form, p.Product(c.axis + 1, p.rank()), want.shape()), want);
      }
    }
  }
}

TEST(RowsProgram, GathersByCoordinatesAsTheCpu) {
  const Tensor params = Noise(DType::kFloat, Shape({4, 5, 3}), 3);
  Tensor indices(DType::kInt32, Shape({6, 2}));
  for (int64_t i = 0; i < 6; ++i) {
    indices.data<int32_t>()[2 * i] = static_cast<int32_t>(i * 7 % 4);
    indices.data<int32_t>()[2 * i + 1] = static_cast<int32_t>(i * 3 % 5);
  }
  const Tensor want = OnCpu("GatherNd", {params, indices}, {})[0];
  const RowIndex index = RowIndex::Of(std::vector<int64_t>{4, 5}).value();
  const GatherForm form{.outer = 1, .axis = 20, .count = 6, .index = index};
  ExpectSame(Gather(params, indices, form, 3, want.shape()), want);
}

TEST(RowsProgram, GathersZerosForIndicesOutOfRange) {
  const Tensor params = Noise(DType::kFloat, Shape({4, 2}), 3);
  const Tensor indices = Tensor::Of<int32_t>({3}, {-1, 2, 4});
  const GatherForm form{.outer = 1, .axis = 4, .count = 3, .index = RowIndex::Of(4)};
  const Tensor got = Gather(params, indices, form, 2, Shape({3, 2}));
  const float* const row = params.data<float>() + 4;
  ExpectSame(got, Tensor::Of<float>({3, 2}, {0, 0, row[0], row[1], 0, 0}));
}

TEST(RowsProgram, TheFirstIndexOutOfRangeIsNamed) {
  const Tensor rows = Tensor::Of<int32_t>({2, 2}, {0, 4, 7, -1});
  EXPECT_TRUE(CheckIndices(rows, RowIndex::Of(8), false, true).ok());
  EXPECT_EQ(CheckIndices(rows, RowIndex::Of(8), false, false).message(), "indices[1,1] = -1 is not in [0, 8)");
  EXPECT_EQ(CheckIndices(rows, RowIndex::Of(5), false, false).message(), "indices[1,0] = 7 is not in [0, 5)");
  const RowIndex pair = RowIndex::Of(std::vector<int64_t>{8, 4}).value();
  EXPECT_EQ(CheckIndices(rows, pair, true, false).message(), "indices[0] = [0, 4] does not index into [8,4]");
}

// The sorted slots of indices, as GpuRowOrder::Sort gets them.
std::vector<uint64_t> Sorted(const Tensor& indices, RowIndex form, int64_t n) {
  HostProgram make(RowsProgram::Slots(indices.dtype()), {RowsProgram::kSlots});
  // Slow to compile. Destroyed at the end, because it has a folder.
  static HostProgram sort(RowsProgram::Sort(), {RowsProgram::kSortPieces, RowsProgram::kMergeRuns});
  EXPECT_TRUE(make.ok() && sort.ok());
  std::vector<uint64_t> slots(n), other(n);
  const void* at = indices.raw_data();
  void* to = slots.data();
  LaunchElements(make, RowsProgram::kSlots, {&n, &form, &at, &to});
  constexpr int64_t kBlock = RowsProgram::kSortedByBlock;
  sort.Launch(RowsProgram::kSortPieces, {static_cast<unsigned>((n + kBlock - 1) / kBlock)}, {kBlock}, {&n, &to});
  for (int64_t run = kBlock; run < n; run *= 2) {
    void *in = slots.data(), *out = other.data();
    LaunchElements(sort, RowsProgram::kMergeRuns, {&n, &run, &in, &out});
    std::swap(slots, other);
  }
  return slots;
}

TEST(RowsProgram, IndicesAreSortedByRowAndPlace) {
  for (const int64_t n : {1, 2, 255, 256, 257, 700, 1025, 3000}) {
    SCOPED_TRACE(n);
    const Tensor indices = Indices(DType::kInt32, Shape({n}), 40, 9);
    std::vector<uint64_t> want;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t row = indices.data<int32_t>()[i];
      want.push_back(static_cast<uint64_t>(row < 35 ? row : 0xffffffff) << 32 | static_cast<uint64_t>(i));
    }
    std::sort(want.begin(), want.end());
    EXPECT_EQ(Sorted(indices, RowIndex::Of(35), n), want);
  }
}

// As GpuRowUpdate::Run does it.
void Update(const std::string& combine, bool rounds, const Tensor& indices, const RowIndex& form, int64_t n,
            const Tensor& updates, Tensor* values) {
  std::vector<uint64_t> slots = Sorted(indices, form, n);
  HostProgram program(RowsProgram::Update(combine, rounds, values->dtype()), {RowsProgram::kUpdate});
  ASSERT_TRUE(program.ok());
  int64_t columns = values->num_elements() / form.rows();
  int moves = updates.num_elements() == n * columns ? 1 : 0;
  void *order = slots.data(), *to = values->raw_data();
  const void* from = updates.raw_data();
  LaunchRows(program, RowsProgram::kUpdate, {&n, &columns, &order, &from, &moves, &to});
}

struct ScatterOpCase {
  const char* op;
  const char* combine;
};

TEST(RowsProgram, UpdatesSlicesAsTheCpuInTheOrderOfTheIndices) {
  for (const DType dtype : {DType::kFloat, DType::kBFloat16, DType::kInt8, DType::kInt64}) {
    const Tensor x = Noise(dtype, Shape({11, 3}), 3), updates = Noise(dtype, Shape({300, 3}), 4);
    const Tensor indices = Indices(DType::kInt32, Shape({300, 1}), 11, 6);
    for (const auto& [op, combine] : {ScatterOpCase{"TensorScatterUpdate", "x"},
                                      {"TensorScatterAdd", "AddFn()(a, x)"},
                                      {"TensorScatterSub", "SubFn()(a, x)"},
                                      {"TensorScatterMin", "LesserOfFn()(a, x)"},
                                      {"TensorScatterMax", "GreaterOfFn()(a, x)"}}) {
      SCOPED_TRACE(absl::StrCat(op, " of ", DTypeName(dtype)));
      const Tensor want = OnCpu(op, {x, indices, updates}, {})[0];
      Tensor got = x.Clone();
      Update(combine, true, indices, RowIndex::Of(11), 300, updates, &got);
      ExpectSame(got, want);
    }
  }
}

TEST(RowsProgram, ScattersToCoordinatesAsTheCpu) {
  Tensor indices(DType::kInt64, Shape({400, 2}));
  const Tensor first = Indices(DType::kInt64, Shape({400}), 3, 1), second = Indices(DType::kInt64, Shape({400}), 5, 2);
  for (int64_t i = 0; i < 400; ++i) {
    indices.data<int64_t>()[2 * i] = first.data<int64_t>()[i];
    indices.data<int64_t>()[2 * i + 1] = second.data<int64_t>()[i];
  }
  const Tensor updates = Noise(DType::kFloat, Shape({400}), 4);
  const Tensor want = OnCpu("ScatterNd", {indices, updates, Tensor::Of<int64_t>({2}, {3, 5})}, {})[0];
  Tensor got(DType::kFloat, Shape({3, 5}));
  std::fill_n(got.data<float>(), 15, 0.0f);
  Update("AddFn()(a, x)", true, indices, RowIndex::Of(std::vector<int64_t>{3, 5}).value(), 400, updates, &got);
  ExpectSame(got, want);
}

TEST(RowsProgram, OneUpdateForAllRows) {
  Tensor got = Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  Update("AddFn()(a, x)", true, Tensor::Of<int32_t>({3}, {2, 0, 2}), RowIndex::Of(3), 3, Tensor::Scalar(10.0f), &got);
  ExpectSame(got, Tensor::Of<float>({3, 2}, {11, 12, 3, 4, 25, 26}));
}

TEST(RowsProgram, SegmentsAreCombinedAsOnTheCpu) {
  for (const DType dtype : {DType::kFloat, DType::kHalf, DType::kInt64}) {
    const Tensor x = Noise(dtype, Shape({500, 2}), 3), ids = Indices(DType::kInt32, Shape({500}), 7, 8);
    for (const auto& [op, combine] : {ScatterOpCase{"UnsortedSegmentSum", "AddFn()(a, x)"},
                                      {"UnsortedSegmentProd", "MulFn()(a, x)"},
                                      {"UnsortedSegmentMax", "GreaterOfFn()(x, a)"},
                                      {"UnsortedSegmentMin", "LesserOfFn()(x, a)"}}) {
      SCOPED_TRACE(absl::StrCat(op, " of ", DTypeName(dtype)));
      const Tensor want = OnCpu(op, {x, ids, Tensor::Scalar(int32_t{9})}, {})[0];  // segments 7 and 8 have no rows
      // What is filled in first: results of no rows.
      Tensor got =
          OnCpu(op, {Noise(dtype, Shape({0, 2}), 1), Tensor(DType::kInt32, Shape({0})), Tensor::Scalar(int32_t{9})},
                {})[0]
              .Clone();
      Update(combine, false, ids, RowIndex::Of(9), 500, x, &got);
      ExpectSame(got, want);
    }
  }
}

TEST(RowsProgram, SparseSegmentsAndTheirGradientsAreTheCpus) {
  if (NvrtcVersion().ok()) {
    for (const DType dtype : CudaRealFloats()) {
      for (const DType source : {DType::kInt32, DType::kInt64})
        ExpectCompilesWithoutSpills(RowsProgram::Segments(dtype, source));
    }
  }
  constexpr int64_t kEntries = 300, kRows = 13, kSegments = 9;
  const Tensor indices = Indices(DType::kInt32, Shape({kEntries}), kRows, 2);
  Tensor ids = Indices(DType::kInt32, Shape({kEntries}), 7, 5).Clone();  // the last segments have no rows
  std::sort(ids.data<int32_t>(), ids.data<int32_t>() + kEntries);
  for (const DType dtype : {DType::kFloat, DType::kBFloat16}) {
    HostProgram program(RowsProgram::Segments(dtype, DType::kInt32),
                        {RowsProgram::kCount, RowsProgram::kSumChosen, RowsProgram::kAddBack});
    ASSERT_TRUE(program.ok());
    const Tensor x = Noise(dtype, Shape({kRows, 4}), 3), grad = Noise(dtype, Shape({kSegments, 4}), 4);
    int64_t n = kEntries, columns = 4, x_rows = kRows, segments = kSegments;
    std::vector<uint64_t> by_segment = Sorted(ids, RowIndex::Of(kSegments), n);
    std::vector<uint64_t> by_row = Sorted(indices, RowIndex::Of(kRows), n);
    const void *values = x.raw_data(), *gradient = grad.raw_data(), *rows = indices.raw_data(), *which = ids.raw_data();
    for (int scale = 0; scale < 3; ++scale) {
      const std::string op = absl::StrCat("SparseSegment", scale == 0 ? "Sum" : scale == 1 ? "Mean" : "SqrtN");
      SCOPED_TRACE(absl::StrCat(op, " of ", DTypeName(dtype)));
      const auto zeros = [&](int64_t height) {
        return OnCpu("ZerosLike", {Noise(dtype, Shape({height, 4}), 1)}, {})[0].Clone();
      };
      Tensor sums = zeros(kSegments), back = zeros(kRows);
      void *order = by_segment.data(), *to = sums.raw_data();
      LaunchRows(program, RowsProgram::kSumChosen, {&n, &columns, &scale, &order, &rows, &x_rows, &values, &to});
      const Tensor last = Tensor::Scalar(static_cast<int32_t>(kSegments));
      ExpectNear(sums, OnCpu(op + "WithNumSegments", {x, indices, ids, last}, {})[0]);

      std::vector<int64_t> counts(kSegments);
      void* counted = counts.data();
      LaunchElements(program, RowsProgram::kCount, {&n, &order, &counted});
      order = by_row.data();
      to = back.raw_data();
      LaunchRows(program, RowsProgram::kAddBack,
                 {&n, &columns, &scale, &order, &which, &segments, &counted, &gradient, &to});
      ExpectNear(back, OnCpu(op + "Grad", {grad, indices, ids, Tensor::Scalar(static_cast<int32_t>(kRows))}, {})[0]);
    }
  }
}

}  // namespace
}  // namespace millrace
