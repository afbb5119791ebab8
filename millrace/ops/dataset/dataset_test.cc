#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "millrace/base/file.h"
#include "millrace/io/record.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/tensor/variant.h"
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
    iterator_ = it;
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
  Endpoint iterator_;
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

class RecordInputTest : public DatasetOpTest {
 protected:
  // Files of `records` records each, which count upwards.
  void Write(int files, int records) {
    for (int file = 0; file < files; ++file) {
      const auto writer = RecordWriter::Create(FileSystem::Posix(), dir_.File(absl::StrCat("records.", file))).value();
      for (int i = 0; i < records; ++i) ASSERT_TRUE(writer->Write(absl::StrCat(file * records + i)).ok());
      ASSERT_TRUE(writer->Close().ok());
    }
  }
  Endpoint Input(const std::string& pattern, AttrList more = {}) {
    more.emplace_back("file_pattern", dir_.File(pattern));
    return b_.Op("RecordInput", {}, more);
  }

  TempDirectory dir_ = TempDirectory::Make("record_input_test").value();
};

TEST_F(RecordInputTest, GivesEveryRecordOnceInAnEpoch) {
  Write(4, 6);
  const Endpoint batch = Input(
      "records.*", {{"batch_size", int64_t{8}}, {"file_buffer_size", int64_t{5}}, {"file_shuffle_shift_ratio", 0.5f}});
  std::set<std::vector<std::string>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::string> order;
    for (int i = 0; i < 3; ++i) {
      const std::vector<std::string> values = Values<std::string>(batch);
      ASSERT_EQ(values.size(), 8u);
      order.insert(order.end(), values.begin(), values.end());
    }
    EXPECT_EQ(std::set<std::string>(order.begin(), order.end()).size(), 24u);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 3u) << "another order in each epoch";
}

TEST_F(RecordInputTest, BadArgumentsAndMissingFilesAreNamed) {
  Write(1, 0);
  EXPECT_EQ(Fetch({Input("records.*")}).status().code(), absl::StatusCode::kOutOfRange) << "no records";
  const Status missing = Fetch({Input("nothing.*")}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), ::testing::HasSubstr("nothing.*"));
  for (const auto& [name, attr] : AttrList{{"file_buffer_size", int64_t{0}},
                                           {"file_parallelism", int64_t{-1}},
                                           {"file_shuffle_shift_ratio", 1.5f},
                                           {"compression_type", std::string("LZ77")}}) {
    const Status status = Fetch({Input("records.*", {{name, attr}})}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(name));
  }
}

class IteratorPositionTest : public DatasetOpTest {
 protected:
  std::vector<int64_t> Take(Endpoint next, int count) {
    std::vector<int64_t> taken;
    for (int i = 0; i < count; ++i) {
      const auto value = Fetch({next});
      EXPECT_TRUE(value.ok()) << value.status();
      if (!value.ok()) break;
      taken.push_back((*value)[0].scalar<int64_t>());
    }
    return taken;
  }
  // An iterator that is restored by feeding `position`.
  Node* RestoreOp(Endpoint position) { return b_.Op("DeserializeIterator", {iterator_, position}, {}).node; }
};

TEST_F(IteratorPositionTest, ARestoredIteratorGoesOnInTheSameOrder) {
  // Without seeds: every dataset has an order of its own.
  const AttrList attrs = Of(DType::kInt64, PartialShape::Scalar());
  const auto pipeline = [&] {
    const Endpoint shuffled = b_.Op("ShuffleDataset", {Range(1000), Int(1000), Int(0), Int(0)}, attrs);
    return b_.Op("PrefetchDataset", {shuffled, Int(4)}, attrs);
  };
  const Endpoint first = Walk(pipeline());
  Node* const start_first = make_;
  const Endpoint position = b_.Op("SerializeIterator", {iterator_}, {});
  const Endpoint second = Walk(pipeline());
  Node* const start_second = make_;
  Node* const restore = RestoreOp(position);
  ASSERT_TRUE(Run(start_first).ok());
  ASSERT_TRUE(Run(start_second).ok());
  const std::vector<int64_t> before = Take(first, 300);
  // One that is in use already, too.
  for (const int used : {0, 7}) {
    Take(second, used);
    ASSERT_TRUE(Run(restore).ok());
    const std::vector<int64_t> rest = Take(second, 700);
    EXPECT_EQ(Fetch({second}).status().code(), absl::StatusCode::kOutOfRange);
    std::vector<int64_t> all = before;
    all.insert(all.end(), rest.begin(), rest.end());
    std::sort(all.begin(), all.end());
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(all[i], i);
    ASSERT_TRUE(Run(start_second).ok());
  }
  // At the end it stays at the end.
  Take(first, 700);
  EXPECT_EQ(Fetch({first}).status().code(), absl::StatusCode::kOutOfRange);
  ASSERT_TRUE(Run(restore).ok());
  EXPECT_EQ(Fetch({second}).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(IteratorPositionTest, IsKeptByACheckpoint) {
  const TempDirectory dir = TempDirectory::Make("dataset_test").value();
  const Endpoint prefix = b_.Const(Tensor::Scalar(dir.File("model"))), slices = b_.Const(Tensor::Of<std::string>({""})),
                 names = b_.Const(Tensor::Of<std::string>({"input"}));
  const std::vector<DType> one{DType::kVariant};
  const Endpoint next = Walk(Range(10));
  Node* const save =
      b_.Op("SaveV2", {prefix, names, slices, b_.Op("SerializeIterator", {iterator_}, {})}, {{"dtypes", one}}).node;
  Node* const restore = RestoreOp(b_.Op("RestoreV2", {prefix, names, slices}, {{"dtypes", one}}));
  EXPECT_EQ(Run(save).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Run(make_).ok());
  EXPECT_THAT(Take(next, 4), ElementsAre(0, 1, 2, 3));
  ASSERT_TRUE(Run(save).ok());
  session_ = Session::Create({}).value();
  EXPECT_EQ(Run(restore).code(), absl::StatusCode::kFailedPrecondition) << "not initialized";
  ASSERT_TRUE(Run(make_).ok());
  ASSERT_TRUE(Run(restore).ok());
  EXPECT_THAT(Take(next, 2), ElementsAre(4, 5));
}

TEST_F(IteratorPositionTest, OfAnotherPipelineOrNoneIsAnError) {
  const AttrList attrs = Of(DType::kInt64, PartialShape::Scalar());
  Walk(b_.Op("ShuffleDataset", {Range(3), Int(3), Int(0), Int(0)}, attrs));
  ASSERT_TRUE(Run(make_).ok());
  const Endpoint position = b_.Op("SerializeIterator", {iterator_}, {});
  const Endpoint other = Range(3);
  Walk(other);
  ASSERT_TRUE(Run(make_).ok());
  Status status = Run(RestoreOp(position));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("random seeds"));
  status = Run(RestoreOp(other));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("not dataset"));
  const Tensor numbers = Tensor::FromVector(std::vector<uint64_t>{3, 1, 2});
  EXPECT_TRUE(VariantDecoder::Run("millrace::IteratorPosition", "1", {numbers}).ok());
  for (const auto& [version, tensors] : std::vector<std::pair<std::string, std::vector<Tensor>>>{
           {"2", {numbers}},
           {"", {numbers}},
           {"1", {}},
           {"1", {numbers, numbers}},
           {"1", {Tensor::Scalar("3")}},
           {"1", {Tensor::FromVector(std::vector<uint64_t>{3, 1})}}}) {
    EXPECT_EQ(VariantDecoder::Run("millrace::IteratorPosition", version, tensors).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// The function of a Map waits for a queue that nobody fills; restoring ends the wait.
TEST_F(IteratorPositionTest, RestoringEndsAnIterationThatWaits) {
  const Endpoint queue = Queue("slow");
  const pb::AttrValue f = Define("wait", {{"element", DType::kInt64}, {"queue", DType::kResource}}, {Dequeue("queue")},
                                 "take:components:0");
  const AttrList attrs = Of(DType::kInt64, PartialShape::Scalar());
  const Endpoint waits = b_.Op(
      "MapDataset", {Range(3), queue},
      Of(DType::kInt64, PartialShape::Scalar(), {{"f", f}, {"Targuments", std::vector<DType>{DType::kResource}}}));
  const Endpoint next = Walk(b_.Op("PrefetchDataset", {waits, Int(1)}, attrs));
  Node* const restore = RestoreOp(b_.Op("SerializeIterator", {iterator_}, {}));
  Node* const put = b_.Op("QueueEnqueueV2", {queue, Int(5)}, {{"Tcomponents", std::vector<DType>{DType::kInt64}}}).node;
  SessionOptions options;
  options.waits = std::make_shared<WaitRegistry>();
  session_ = Session::Create(options).value();
  ASSERT_TRUE(Run(make_).ok());
  Status ended;
  std::thread taker([&] { ended = session_->Run({}, {next.name()}, {}).status(); });
  // Not only the prefetching thread waits, but the step as well.
  const auto takes = [&] {
    const auto waits = options.waits->List();
    return std::any_of(waits.begin(), waits.end(), [&](const auto& wait) { return wait.node == next.node->name(); });
  };
  while (!takes()) std::this_thread::yield();
  EXPECT_TRUE(Run(restore).ok());
  taker.join();
  EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled) << ended;
  ASSERT_TRUE(Run(put).ok());
  EXPECT_THAT(Take(next, 1), ElementsAre(5));
}

}  // namespace
}  // namespace millrace
