// Sums of embeddings: the ops that a client writes, against what the pass row_sums makes of them.
#include "gmock/gmock.h"
#include "millrace/tensor/dispatch.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Numbers of rows of a table, and the segments that they are combined to.
struct Lookup {
  Tensor ids, segments;
  int64_t count = -1;  // of segments; -1 to take it from the segments
};

// Segments with none, one and several ids, some of them twice.
Lookup FewIds() {
  return {Tensor::Of<int64_t>({5, 2, 2, 0, 5, 3, 5, 1}), Tensor::Of<int64_t>({1, 1, 1, 2, 4, 5, 5, 7}), 9};
}

Lookup ManyIds(int64_t n, int64_t rows) {
  Tensor ids(DType::kInt32, Shape({n})), segments(DType::kInt32, Shape({n}));
  uint32_t state = 7;
  int32_t segment = 0;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    ids.data<int32_t>()[i] = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(rows));
    // Some long segments, and gaps.
    segment += i % 97 < 40 ? 0 : static_cast<int32_t>(state >> 30);
    segments.data<int32_t>()[i] = segment;
  }
  return {ids, segments, -1};
}

Tensor Table(DType dtype, Shape shape) {
  const Tensor noise = Noise(std::move(shape));
  Tensor table(dtype, noise.shape());
  DispatchType(FloatTypes(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < noise.num_elements(); ++i) {
      table.data<T>()[i] = static_cast<T>(i % 5 == 0 ? -0.0f : noise.data<float>()[i]);
    }
  });
  return table;
}

struct Outcome {
  Status status;
  Tensor rows;
  std::vector<std::string> ops;  // that ran
};

enum class Kind { kHandle, kReference };

struct RunSettings {
  Kind kind = Kind::kHandle;
  bool passes = true;
  int threads = 2;
  bool initialize = true;
};

Outcome Combine(const std::string& op, const Tensor& table, const Lookup& lookup, const RunSettings& settings) {
  Graph graph;
  GraphBuilder b(&graph);
  const bool handle = settings.kind == Kind::kHandle;
  const AttrList attrs = {{"dtype", table.dtype()}, {"shape", PartialShape(table.shape())}};
  const Endpoint variable = b.Op(handle ? "VarHandleOp" : "VariableV2", {}, attrs, "variable");
  Node* const assign = b.AddNode(handle ? "AssignVariableOp" : "Assign", {variable, b.Const(table)});
  const auto feed = [&](const Tensor& t, const char* name) {
    return b.Op("Placeholder", {}, {{"dtype", t.dtype()}}, name);
  };
  const Endpoint ids = feed(lookup.ids, "ids"), segments = feed(lookup.segments, "segments");
  Node* const unique = b.AddNode("Unique", {ids}, {}, "unique");
  const Endpoint rows =
      handle
          ? b.Op("ResourceGather", {variable, unique->output(0)}, {{"dtype", table.dtype()}}, "rows")
          : b.Op("GatherV2", {b.Op("Identity", {variable}, {}), unique->output(0), b.Scalar<int32_t>(0)}, {}, "rows");
  std::vector<Endpoint> inputs = {rows, unique->output(1), segments};
  if (lookup.count >= 0) inputs.push_back(b.Const(Tensor::Scalar(static_cast<int32_t>(lookup.count))));
  const Endpoint sum = b.Op(op + (lookup.count >= 0 ? "WithNumSegments" : ""), inputs, {}, "sum");
  const Endpoint fetch = b.Op("Identity", {sum}, {}, "fetch");

  Outcome outcome;
  SessionOptions options{.intra_op_threads = settings.threads};
  if (!settings.passes) options.passes = PassOptions::None();
  auto session = Session::Create(options);
  EXPECT_TRUE(b.ok() && session.ok()) << b.status() << session.status();
  if (!b.ok() || !session.ok()) return outcome;
  EXPECT_TRUE((*session)->Extend(graph).ok());
  if (settings.initialize) {
    EXPECT_TRUE((*session)->RunTargets({assign->name()}).ok());
  }
  RunOptions run;
  run.output_partition_graphs = true;
  RunMetadata metadata;
  std::vector<Tensor> results;
  outcome.status = (*session)->Run(run, {{"ids", lookup.ids}, {"segments", lookup.segments}}, {fetch.name()}, {},
                                   &results, &metadata);
  if (outcome.status.ok()) outcome.rows = results[0];
  for (const auto& partition : metadata.partition_graphs()) {
    for (const auto& node : partition.node()) outcome.ops.push_back(node.op());
  }
  return outcome;
}

constexpr char kByHandle[] = "_CombineResourceRows", kByReference[] = "_CombineVariableRows";

TEST(CombineRows, GivesTheBytesOfTheOpsInWhosePlaceItIs) {
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16}) {
    for (const char* op : {"SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"}) {
      for (const Kind kind : {Kind::kHandle, Kind::kReference}) {
        for (const int64_t width : {1, 8, 131}) {
          SCOPED_TRACE(absl::StrCat(DTypeName(dtype), " ", op, " ", width, kind == Kind::kHandle ? " handle" : ""));
          const Tensor table = Table(dtype, Shape({6, width}));
          Lookup lookup = FewIds();
          for (const int64_t count : {9, -1}) {
            lookup.count = count;
            const Outcome plain = Combine(op, table, lookup, {.kind = kind, .passes = false});
            const Outcome fused = Combine(op, table, lookup, {.kind = kind});
            ASSERT_TRUE(plain.status.ok()) << plain.status;
            ASSERT_TRUE(fused.status.ok()) << fused.status;
            EXPECT_THAT(fused.ops, Contains(kind == Kind::kHandle ? kByHandle : kByReference));
            EXPECT_THAT(fused.ops, Not(Contains("Unique")));
            EXPECT_THAT(plain.ops, Not(Contains(kByHandle)));
            EXPECT_TRUE(SameBytes(fused.rows, plain.rows));
          }
        }
      }
    }
  }
}

TEST(CombineRows, LargeInputsAreTheSameForAnyNumberOfThreads) {
  const Tensor table = Table(DType::kFloat, Shape({3000, 24}));
  const Lookup lookup = ManyIds(40000, 3000);
  const Outcome plain = Combine("SparseSegmentMean", table, lookup, {.passes = false});
  ASSERT_TRUE(plain.status.ok()) << plain.status;
  for (const int threads : {1, 2, 8}) {
    const Outcome fused = Combine("SparseSegmentMean", table, lookup, {.threads = threads});
    ASSERT_TRUE(fused.status.ok()) << fused.status;
    EXPECT_THAT(fused.ops, Contains(kByHandle));
    EXPECT_TRUE(SameBytes(fused.rows, plain.rows)) << threads;
  }
}

TEST(CombineRows, NoIdsAndNoColumnsGiveWhatTheOpsGive) {
  const Lookup none = {Tensor(DType::kInt64, Shape({0})), Tensor(DType::kInt64, Shape({0})), 3};
  for (const auto& [table, lookup] :
       {std::pair(Table(DType::kFloat, Shape({6, 2})), none), std::pair(Table(DType::kFloat, Shape({6, 0})), FewIds()),
        std::pair(Table(DType::kFloat, Shape({6})), FewIds())}) {
    const Outcome plain = Combine("SparseSegmentSum", table, lookup, {.passes = false});
    const Outcome fused = Combine("SparseSegmentSum", table, lookup, {});
    ASSERT_TRUE(plain.status.ok() && fused.status.ok()) << plain.status << fused.status;
    EXPECT_TRUE(SameBytes(fused.rows, plain.rows));
  }
}

// The message without the node that it is about.
std::string TextOf(const Status& status) {
  const std::string message(status.message());
  return message.substr(0, message.find("\n\t [["));
}

TEST(CombineRows, FailsInTheWordsOfTheOpsInWhosePlaceItIs) {
  const Tensor table = Table(DType::kFloat, Shape({6, 2}));
  const Lookup good = FewIds();
  struct Case {
    const char* words;
    Lookup lookup;
    bool initialize = true;
  };
  const std::vector<Case> cases = {
      {"indices[2] = 6 is not in [0, 6)", {Tensor::Of<int64_t>({1, 1, 0, 6}), Tensor::Of<int64_t>({0, 0, 1, 1})}},
      {"indices[0] = -1 is not in [0, 6)", {Tensor::Of<int64_t>({-1}), Tensor::Of<int64_t>({0})}},
      {"segment ids are not increasing", {Tensor::Of<int64_t>({1, 2, 3}), Tensor::Of<int64_t>({1, 0, 2})}},
      {"segment ids must be < num_segments", {good.ids, good.segments, 7}},
      {"segment ids must be < num_segments", {Tensor::Of<int64_t>({1}), Tensor::Of<int64_t>({3}), 3}},
      {"segment_ids and indices should have same size", {good.ids, Tensor::Of<int64_t>({0})}},
      {"segment_ids should be a vector", {Tensor::Of<int64_t>({1}), Tensor::Of<int64_t>({1, 1}, {0})}},
      {"unique expects a 1D vector", {Tensor::Of<int64_t>({1, 1}, {0}), Tensor::Of<int64_t>({0})}},
      {"does not exist", good, false},
  };
  for (const Case& c : cases) {
    const Outcome plain = Combine("SparseSegmentSum", table, c.lookup, {.passes = false, .initialize = c.initialize});
    const Outcome fused = Combine("SparseSegmentSum", table, c.lookup, {.initialize = c.initialize});
    EXPECT_THAT(std::string(plain.status.message()), HasSubstr(c.words));
    EXPECT_EQ(fused.status.code(), plain.status.code()) << fused.status;
    EXPECT_EQ(TextOf(fused.status), TextOf(plain.status));
    // The message has the nodes that the user wrote.
    EXPECT_THAT(std::string(fused.status.message()), HasSubstr("[[{{node unique}}, {{node rows}}, {{node sum}}]]"));
  }
}

}  // namespace
}  // namespace millrace
