// Nobody sees half an update: variables are read, gathered from, saved and sent while others update them.
#include <atomic>
#include <thread>

#include "millrace/base/file.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 96, kColumns = 61;

class WholeValuesTest : public OpSessionTest {
 protected:
  // A variable of zeros behind a handle, and the node that makes it one.
  Endpoint Variable(const std::string& name) {
    const Endpoint handle =
        b_.Op("VarHandleOp", {},
              {{"dtype", DType::kFloat}, {"shape", PartialShape({kRows, kColumns})}, {"shared_name", name}}, name);
    const Endpoint zeros = b_.Op("Fill", {b_.Ints({kRows, kColumns}), b_.Scalar<float>(0)});
    EXPECT_TRUE(Run(b_.AddNode("AssignVariableOp", {{handle, zeros}}, {{"dtype", DType::kFloat}})).ok());
    return handle;
  }
  Endpoint Read(Endpoint handle) { return b_.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}); }
  Endpoint Ones(std::vector<int32_t> shape) { return b_.Op("Fill", {b_.Ints(std::move(shape)), b_.Scalar<float>(1)}); }

  // True when every row, or with `whole` the whole tensor, has one value in all places.
  static bool IsEven(const Tensor& t, bool whole) {
    const int64_t columns = t.dim(t.rank() - 1);
    const float* v = t.data<float>();
    for (int64_t i = 0; i < t.num_elements(); ++i) {
      if (v[i] != v[whole ? 0 : i / columns * columns]) return false;
    }
    return true;
  }

  // Runs `updates` by one thread each for ever, and `look` until it has looked often enough.
  void WhileUpdating(const std::vector<Node*>& updates, const std::function<void()>& look) {
    ASSERT_TRUE(session_->Extend(graph_).ok());
    std::atomic<bool> stop{false};
    std::atomic<int64_t> steps{0};
    std::vector<std::thread> threads;
    for (Node* update : updates) {
      threads.emplace_back([&, name = update->name()] {
        while (!stop) {
          EXPECT_TRUE(session_->RunTargets({name}).ok());
          ++steps;
        }
      });
    }
    for (int i = 0; i < 30 || steps < 200; ++i) look();
    stop = true;
    for (std::thread& t : threads) t.join();
  }

  Tensor Fetched(Endpoint e) { return session_->Run({e.name()}).value()[0]; }
  // What a step that is run in parts sends out.
  Tensor Sent(Endpoint e) {
    const std::string handle = session_->PartialRunSetup({}, std::vector<std::string>{e.name()}, {}).value();
    std::vector<Tensor> results;
    EXPECT_TRUE(session_->PartialRun(handle, {}, std::vector<std::string>{e.name()}, &results).ok());
    return results[0];
  }
  Node* Save(const std::string& prefix, Endpoint value) {
    return b_.AddNode("SaveV2", {{b_.Const(Tensor::Scalar(prefix)), b_.Const(Tensor::Of<std::string>({"w"})),
                                  b_.Const(Tensor::Of<std::string>({""})), value}});
  }
  Endpoint Restore(const std::string& prefix) {
    return b_.Op("RestoreV2",
                 {b_.Const(Tensor::Scalar(prefix)), b_.Const(Tensor::Of<std::string>({"w"})),
                  b_.Const(Tensor::Of<std::string>({""}))},
                 {{"dtypes", std::vector<DType>{DType::kFloat}}});
  }

  TempDirectory dir_ = TempDirectory::Make("whole_values_test").value();
};

TEST_F(WholeValuesTest, DenseUpdatesAreSeenWholeOrNotAtAll) {
  const Endpoint w = Variable("w"), value = Read(w);
  std::vector<Node*> updates;
  for (int i = 0; i < 2; ++i) {
    updates.push_back(b_.AddNode("AssignAddVariableOp", {{w, Ones({kRows, kColumns})}}, {{"dtype", DType::kFloat}}));
  }
  const std::string prefix = dir_.File("dense");
  Node* const save = Save(prefix, value);
  const Endpoint restored = Restore(prefix);
  WhileUpdating(updates, [&] {
    EXPECT_TRUE(IsEven(Fetched(value), true));
    EXPECT_TRUE(IsEven(Sent(value), true));
    ASSERT_TRUE(session_->RunTargets({save->name()}).ok());
    EXPECT_TRUE(IsEven(Fetched(restored), true));
  });
}

TEST_F(WholeValuesTest, UpdatesOfRowsAreSeenRowByRow) {
  const Endpoint w = Variable("w"), value = Read(w);
  std::vector<int32_t> some;
  for (int32_t i = 0; i < kRows; i += 2) some.push_back(i);
  const int32_t n = static_cast<int32_t>(some.size());
  const AttrList attrs = {{"dtype", DType::kFloat}};
  const std::vector<Node*> updates = {
      b_.AddNode("ResourceScatterAdd", {{w, b_.Ints(some), Ones({n, kColumns})}}, attrs),
      b_.AddNode("ResourceScatterAdd", {{w, b_.Ints({1, 2, 3, 2}), Ones({4, kColumns})}}, attrs),
      b_.AddNode("AssignAddVariableOp", {{w, Ones({kRows, kColumns})}}, attrs)};
  const Endpoint rows = b_.Op("ResourceGather", {w, b_.Ints({2, 3, 95, 2})}, attrs);
  // Of many rows, so that updates come in between.
  std::vector<int32_t> often, pairs;
  for (int32_t i = 0; i < 4000; ++i) {
    often.push_back(i * 7 % kRows);
    pairs.push_back(i / 2);
  }
  const Endpoint sums = b_.Op("_CombineResourceRows", {w, b_.Ints(often), b_.Ints(pairs)},
                              {{"dtype", DType::kFloat}, {"combiner", "sum"}, {"N", 0}});
  const std::string prefix = dir_.File("sparse");
  Node* const save = Save(prefix, value);
  const Endpoint restored = Restore(prefix);
  WhileUpdating(updates, [&] {
    EXPECT_TRUE(IsEven(Fetched(value), false));
    EXPECT_TRUE(IsEven(Fetched(rows), false));
    EXPECT_TRUE(IsEven(Fetched(sums), false));
    EXPECT_TRUE(IsEven(Sent(value), false));
    ASSERT_TRUE(session_->RunTargets({save->name()}).ok());
    EXPECT_TRUE(IsEven(Fetched(restored), false));
  });
}

}  // namespace
}  // namespace millrace
