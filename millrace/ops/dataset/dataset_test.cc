#include <gmock/gmock.h>

#include <thread>

#include "millrace/runtime/wait_registry.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

class DatasetOpTest : public OpSessionTest {
 protected:
  // Attrs that every dataset op has, for one component.
  AttrList Of(DType type, PartialShape shape, AttrList more = {}) {
    more.emplace_back("output_types", std::vector<DType>{type});
    more.emplace_back("output_shapes", std::vector<PartialShape>{std::move(shape)});
    return more;
  }
  Endpoint Int(int64_t v) { return b_.Const(Tensor::Scalar<int64_t>(v)); }
  Endpoint Range(int64_t n) {
    return b_.Op("RangeDataset", {Int(0), Int(n), Int(1)}, Of(DType::kInt64, PartialShape::Scalar()));
  }
  // An initialised iterator's next element.
  Endpoint Walk(Endpoint dataset, PartialShape shape = PartialShape::Scalar()) {
    const Endpoint it = b_.Op("IteratorV2", {}, Of(DType::kInt64, shape, {{"shared_name", ""}, {"container", ""}}));
    make_ = b_.Op("MakeIterator", {dataset, it}, {}).node;
    return b_.Op("IteratorGetNext", {it}, Of(DType::kInt64, shape));
  }

  Node* make_ = nullptr;
};

TEST_F(DatasetOpTest, IteratorWalksAndSaysWhenItIsAtTheEnd) {
  const Endpoint batches = b_.Op("BatchDatasetV2", {Range(5), Int(2), b_.Const(Tensor::Scalar(false))},
                                 Of(DType::kInt64, PartialShape({-1})));
  const Endpoint next = Walk(batches, PartialShape({-1}));
  EXPECT_EQ(Fetch({next}).status().code(), absl::StatusCode::kFailedPrecondition);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(Run(make_).ok());
    EXPECT_THAT(Values<int64_t>(next), ElementsAre(0, 1));
    EXPECT_THAT(Values<int64_t>(next), ElementsAre(2, 3));
    EXPECT_THAT(Values<int64_t>(next), ElementsAre(4));
    EXPECT_EQ(Fetch({next}).status().code(), absl::StatusCode::kOutOfRange);
  }
}

TEST_F(DatasetOpTest, BadArgumentsNameTheInput) {
  const AttrList attrs = Of(DType::kInt64, PartialShape::Scalar());
  const Endpoint range = Range(3);
  for (const auto& [bad, name] : std::vector<std::pair<Endpoint, std::string>>{
           {b_.Op("BatchDataset", {range, Int(0)}, attrs), "batch_size"},
           {b_.Op("ShardDataset", {range, Int(2), Int(2)}, attrs), "index"},
           {b_.Op("ShardDataset", {range, Int(0), Int(0)}, attrs), "num_shards"},
           {b_.Op("PrefetchDataset", {range, Int(-2)}, attrs), "buffer_size"},
           {b_.Op("ShuffleDataset", {range, Int(0), Int(1), Int(1)}, attrs), "buffer_size"},
           {b_.Op("RangeDataset", {Int(0), Int(3), Int(0)}, attrs), "step"}}) {
    Walk(bad);
    const Status status = Run(make_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
  }
}

TEST_F(DatasetOpTest, ElementsOfAnotherTypeThanPromisedAreAnError) {
  const Endpoint words = b_.Op("TensorDataset", {b_.Const(Tensor::Scalar("word"))},
                               {{"Toutput_types", std::vector<DType>{DType::kString}},
                                {"output_shapes", std::vector<PartialShape>{PartialShape::Scalar()}}});
  const Endpoint next = Walk(words);
  ASSERT_TRUE(Run(make_).ok());
  EXPECT_EQ(Fetch({next}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DatasetOpTest, ManyTakersGetEveryElementOnce) {
  const AttrList attrs = Of(DType::kInt64, PartialShape::Scalar());
  const Endpoint next = Walk(b_.Op("PrefetchDataset", {Range(400), Int(2)}, attrs));
  ASSERT_TRUE(Run(make_).ok());
  ASSERT_EQ(Values<int64_t>(next), std::vector<int64_t>({0}));
  std::vector<std::vector<int64_t>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&, this] {
      for (;;) {
        const auto result = session_->Run({}, {next.name()}, {});
        if (!result.ok()) return;
        mine.push_back((*result)[0].scalar<int64_t>());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  std::vector<int64_t> all;
  for (const auto& mine : taken) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 399u);
  for (int64_t i = 0; i < 399; ++i) EXPECT_EQ(all[i], i + 1);
}

}  // namespace
}  // namespace millrace
