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

  // A function of `inputs` to one int64, `nodes` being its body: name, op, inputs; `result` is an output of them.
  struct BodyNode {
    std::string name, op;
    std::vector<std::string> inputs;
    AttrList attrs = {};
  };
  pb::AttrValue Define(const std::string& name, const std::vector<std::pair<std::string, DType>>& inputs,
                       const std::vector<BodyNode>& nodes, const std::string& result) {
    pb::FunctionDef& def = *b_.graph()->mutable_library()->add_function();
    def.mutable_signature()->set_name(name);
    for (const auto& [input, type] : inputs) {
      auto* arg = def.mutable_signature()->add_input_arg();
      arg->set_name(input);
      arg->set_type(static_cast<pb::DataType>(type));
    }
    auto* out = def.mutable_signature()->add_output_arg();
    out->set_name("result");
    out->set_type(pb::DT_INT64);
    for (const BodyNode& body : nodes) {
      pb::NodeDef* node = def.add_node_def();
      node->set_name(body.name);
      node->set_op(body.op);
      for (const std::string& input : body.inputs) node->add_input(input);
      for (const auto& [key, value] : body.attrs) (*node->mutable_attr())[key] = value.value();
    }
    (*def.mutable_ret())["result"] = result;
    pb::AttrValue f;
    f.mutable_func()->set_name(name);
    return f;
  }
  Endpoint Queue(const std::string& name) {
    return b_.Op("FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kInt64}}, {"shared_name", name}});
  }
  BodyNode Dequeue(const std::string& queue) {
    return {"take", "QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kInt64}}}};
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

// init_func takes a number from one queue as the state, next_func adds it to a number of another until that is closed,
// finalize_func takes from a third.
TEST_F(DatasetOpTest, AGeneratorBeginsGoesOnAndEnds) {
  const Endpoint begin = Queue("begin"), go_on = Queue("go_on"), end = Queue("end");
  const auto put = [&](Endpoint queue, std::vector<int64_t> values) {
    const AttrList attrs = {{"Tcomponents", std::vector<DType>{DType::kInt64}}};
    ASSERT_TRUE(Run(b_.Op("QueueEnqueueManyV2", {queue, b_.Const(Tensor::FromVector(values))}, attrs).node).ok());
  };
  const auto size = [&](Endpoint queue) { return Values<int32_t>(b_.Op("QueueSizeV2", {queue}, {}))[0]; };
  const pb::AttrValue init = Define("init", {{"queue", DType::kResource}}, {Dequeue("queue")}, "take:components:0");
  const pb::AttrValue next =
      Define("next", {{"state", DType::kInt64}, {"queue", DType::kResource}},
             {Dequeue("queue"), {"sum", "AddV2", {"state", "take:components:0"}, {{"T", DType::kInt64}}}}, "sum:z:0");
  const pb::AttrValue finalize = Define("finalize", {{"state", DType::kInt64}, {"queue", DType::kResource}},
                                        {Dequeue("queue")}, "take:components:0");
  const std::vector<DType> one_queue{DType::kResource};
  const Endpoint numbers = b_.Op("GeneratorDataset", {begin, go_on, end},
                                 Of(DType::kInt64, PartialShape::Scalar(),
                                    {{"init_func", init},
                                     {"next_func", next},
                                     {"finalize_func", finalize},
                                     {"Tinit_func_args", one_queue},
                                     {"Tnext_func_args", one_queue},
                                     {"Tfinalize_func_args", one_queue}}));
  const Endpoint element = Walk(numbers);
  put(begin, {100});
  put(go_on, {1, 2});
  put(end, {7, 8});
  ASSERT_TRUE(Run(make_).ok());
  EXPECT_THAT(Values<int64_t>(element), ElementsAre(101));
  EXPECT_EQ(size(begin), 0);
  EXPECT_THAT(Values<int64_t>(element), ElementsAre(102));
  EXPECT_EQ(size(end), 2);
  ASSERT_TRUE(Run(b_.Op("QueueCloseV2", {go_on}, {}).node).ok());
  EXPECT_EQ(Fetch({element}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Fetch({element}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(size(end), 1);
}

// The function of a Map waits for a queue that nobody fills.
TEST_F(DatasetOpTest, AFunctionThatWaitsEndsWithTheSession) {
  const Endpoint queue = Queue("empty");
  const pb::AttrValue f = Define("wait", {{"element", DType::kInt64}, {"queue", DType::kResource}}, {Dequeue("queue")},
                                 "take:components:0");
  const Endpoint waits = b_.Op(
      "MapDataset", {Range(3), queue},
      Of(DType::kInt64, PartialShape::Scalar(), {{"f", f}, {"Targuments", std::vector<DType>{DType::kResource}}}));
  const Endpoint ahead = b_.Op("PrefetchDataset", {waits, Int(1)}, Of(DType::kInt64, PartialShape::Scalar()));
  for (const Endpoint dataset : {waits, ahead}) {
    const Endpoint next = Walk(dataset);
    SessionOptions options;
    options.waits = std::make_shared<WaitRegistry>();
    auto session = Session::Create(options);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    ASSERT_TRUE(Run(make_).ok());
    Status ended;
    std::thread taker([&] { ended = session_->Run({}, {next.name()}, {}).status(); });
    while (options.waits->List().empty()) std::this_thread::yield();
    ASSERT_TRUE(session_->Close().ok());
    taker.join();
    EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled) << ended;
    session_.reset();
  }
}

TEST_F(DatasetOpTest, ReducingAnEndlessDatasetEndsWithTheSession) {
  const pb::AttrValue f = Define("sum", {{"state", DType::kInt64}, {"element", DType::kInt64}},
                                 {{"sum", "AddV2", {"state", "element"}, {{"T", DType::kInt64}}}}, "sum:z:0");
  const Endpoint endless = b_.Op("RepeatDataset", {Range(3), Int(-1)}, Of(DType::kInt64, PartialShape::Scalar()));
  const Endpoint total =
      b_.Op("ReduceDataset", {endless, Int(0)},
            Of(DType::kInt64, PartialShape::Scalar(),
               {{"f", f}, {"Tstate", std::vector<DType>{DType::kInt64}}, {"Targuments", std::vector<DType>{}}}));
  SessionOptions options;
  options.waits = std::make_shared<WaitRegistry>();
  auto session = Session::Create(options);
  ASSERT_TRUE(session.ok()) << session.status();
  session_ = *std::move(session);
  ASSERT_TRUE(session_->Extend(graph_).ok());
  Status ended;
  std::thread reducer([&] { ended = session_->Run({}, {total.name()}, {}).status(); });
  while (options.waits->List().empty()) std::this_thread::yield();
  ASSERT_TRUE(session_->Close().ok());
  reducer.join();
  EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled) << ended;
}

TEST_F(DatasetOpTest, OnlyADatasetOfOneElementHasASingleElement) {
  const AttrList attrs = Of(DType::kInt64, PartialShape::Scalar());
  EXPECT_THAT(Values<int64_t>(b_.Op("DatasetToSingleElement", {Range(1)}, attrs)), ElementsAre(0));
  for (const auto& [size, message] : std::vector<std::pair<int64_t, std::string>>{
           {0, "Dataset was empty."}, {2, "Dataset had more than one element."}}) {
    const Status status = Fetch({b_.Op("DatasetToSingleElement", {Range(size)}, attrs)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
  }
}

}  // namespace
}  // namespace millrace
