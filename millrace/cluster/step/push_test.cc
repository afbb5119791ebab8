// Steps over a ps and a worker of one process: which messages they take, and that tensors of all kinds get through.
#include <thread>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/thread_pool.h"
#include "millrace/cluster/counting_transport_testing.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/net/inproc/inproc_transport.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// One ps and two workers; by default calls stream. Only what worker 0 sends and gets is counted.
class PushTest : public ::testing::Test {
 protected:
  PushTest() : PushTest(true) {}
  explicit PushTest(bool streams) {
    const auto network = net::NewInprocNetwork();
    const auto start = [&](const std::string& job, int index, net::Transport* transport) {
      ServerOptions options;
      options.transport = transport;
      servers_.push_back(Server::Start(cluster_, job, index, options).value());
    };
    for (int i = 0; i < 3; ++i) {
      transports_.push_back(net::NewInprocTransport({.network = network, .scheduler = &pool_, .streams = streams}));
    }
    counting_ = std::make_unique<CountingTransport>(transports_[1].get(), &counts_);
    start("ps", 0, transports_[0].get());
    start("worker", 0, counting_.get());
    start("worker", 1, transports_[2].get());
    graph_ = std::make_unique<Graph>();
    b_ = std::make_unique<GraphBuilder>(graph_.get());
  }
  ~PushTest() override {
    session_.reset();
    while (!servers_.empty()) servers_.pop_back();
  }

  void On(const char* task) { b_->device = absl::StrCat("/job:", task, "/device:CPU:0"); }
  void OnPs() { On("ps/task:0"); }
  void OnWorker(int index = 0) { On(index == 0 ? "worker/task:0" : "worker/task:1"); }
  Endpoint Variable(const std::string& name, const Tensor& initial) {
    const std::string device = b_->device;
    OnPs();
    const AttrList attrs = {
        {"dtype", initial.dtype()}, {"shape", PartialShape(initial.shape())}, {"shared_name", name}};
    const Endpoint handle = b_->Op("VarHandleOp", {}, attrs, name);
    inits_.push_back(name + "/init");
    b_->AddNode("AssignVariableOp", std::vector<Endpoint>{handle, b_->Const(initial)}, {}, inits_.back());
    b_->device = device;
    return handle;
  }
  Endpoint Read(Endpoint handle, DType dtype, const std::string& name) {
    const std::string device = b_->device;
    OnPs();
    const Endpoint read = b_->Op("ReadVariableOp", {handle}, {{"dtype", dtype}}, name);
    b_->device = device;
    return read;
  }
  // A session at worker 0, in its process, with variables that have their values.
  Session* Open() {
    EXPECT_EQ(b_->status(), absl::OkStatus());
    session_ = OpenSession({.target = servers_[1]->target()}, *graph_);
    if (!inits_.empty()) {
      EXPECT_EQ(session_->RunTargets(inits_), absl::OkStatus());
    }
    return session_.get();
  }
  // What one step sends and gets once it is compiled.
  std::map<std::string, int> MessagesOf(const std::function<void()>& step) {
    step();
    counts_.Take();
    for (int i = 0; i < 5; ++i) step();
    std::map<std::string, int> counts = counts_.Take();
    counts.erase("GetStatus");
    for (auto& [method, count] : counts) {
      EXPECT_EQ(count % 5, 0) << method;
      count /= 5;
    }
    return counts;
  }
  void ExpectQuiet() {
    for (const auto& server : servers_) {
      EXPECT_TRUE(Await([&] { return server->worker()->ListSteps().empty(); })) << server->task().name();
      // What a cancelled step waited for is let go a moment after the step itself.
      EXPECT_TRUE(Await([&] { return server->worker()->ListWaits().empty(); })) << server->task().name();
    }
  }

  ThreadPool pool_{"inproc", 3};
  const ClusterSpec cluster_ = ClusterSpec::Of({{"ps", {"ps0:1"}}, {"worker", {"worker0:1", "worker1:1"}}}).value();
  MessageCounts counts_;
  std::vector<std::unique_ptr<net::Transport>> transports_;
  std::unique_ptr<CountingTransport> counting_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<GraphBuilder> b_;
  std::vector<std::string> inits_;
  std::unique_ptr<Session> session_;
};

class PullTest : public PushTest {
 protected:
  PullTest() : PushTest(false) {}
};

TEST_F(PushTest, AScalarThatIsReadTakesTwoMessages) {
  const Endpoint w = Variable("w", Tensor::Scalar(3.f));
  OnWorker();
  b_->Op("Mul", {Read(w, DType::kFloat, "w/read"), b_->Scalar(2.f)}, {}, "y");
  Session* const session = Open();
  EXPECT_THAT(MessagesOf([&] { EXPECT_EQ(session->Run({"y"}).value()[0].scalar<float>(), 6); }),
              ElementsAre(Pair("RunGraph", 2)));
  ExpectQuiet();
}

TEST_F(PushTest, WhatIsFedAndFetchedAtThePsTravelsWithRunAndDone) {
  OnPs();
  const Endpoint x = b_->Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}}, "x");
  b_->Op("Mul", {x, b_->Scalar(2.f)}, {}, "y");
  Session* const session = Open();
  EXPECT_THAT(MessagesOf([&] {
                EXPECT_EQ(session->Run({{"x", Tensor::Scalar(4.f)}}, {"y"}).value()[0].scalar<float>(), 8);
              }),
              ElementsAre(Pair("RunGraph", 2)));
}

// 784-100-10 with a batch of 100 and plain gradient descent, its gradients by hand.
class PushedMlp {
 public:
  static void Build(GraphBuilder* b, const std::function<Endpoint(const std::string&, const Tensor&)>& variable,
                    const std::function<Endpoint(Endpoint, const std::string&)>& read,
                    const std::function<void(bool)>& on_ps) {
    const Endpoint w1 = variable("w1", Filled({784, 100})), b1 = variable("b1", Filled({100}));
    const Endpoint w2 = variable("w2", Filled({100, 10})), b2 = variable("b2", Filled({10}));
    on_ps(false);
    const Endpoint x = b->Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({100, 784})}}, "x");
    const Endpoint rw2 = read(w2, "w2/read");
    const Endpoint h = b->Op("Relu", {b->Add(b->Op("MatMul", {x, read(w1, "w1/read")}), read(b1, "b1/read"))});
    const Endpoint y = b->Add(b->Op("MatMul", {h, rw2}), read(b2, "b2/read"));
    const Endpoint dy = b->Sub(y, b->Scalar(1.f));  // of half the squared distance from 1
    const Endpoint dh = b->Op("ReluGrad", {b->Op("MatMul", {dy, rw2}, {{"transpose_b", true}}), h});
    const auto sum = [&](Endpoint e) { return b->Op("Sum", {e, b->Const(Tensor::Of<int32_t>({0}))}); };
    const Endpoint dw2 = b->Op("MatMul", {h, dy}, {{"transpose_a", true}}),
                   dw1 = b->Op("MatMul", {x, dh}, {{"transpose_a", true}});
    const Endpoint db1 = sum(dh), db2 = sum(dy);
    on_ps(true);
    std::vector<Node*> updates;
    const Endpoint rate = b->Scalar(1e-6f);
    for (const auto& [variable, gradient] :
         {std::pair(w1, dw1), std::pair(b1, db1), std::pair(w2, dw2), std::pair(b2, db2)}) {
      updates.push_back(b->AddNode("ResourceApplyGradientDescent", std::vector<Endpoint>{variable, rate, gradient}, {},
                                   variable.node->name() + "/update"));
    }
    on_ps(false);
    Node* const train = b->AddNode("NoOp", {}, {}, "train");
    for (Node* update : updates) b->graph()->AddControlInput(train, update);
    b->Op("Mean", {b->Op("Square", {b->Sub(y, b->Scalar(1.f))}), b->Const(Tensor::Of<int32_t>({0, 1}))}, {}, "loss");
  }

 private:
  static Tensor Filled(std::initializer_list<int64_t> dims) {
    Tensor tensor(DType::kFloat, Shape(dims));
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.data<float>()[i] = static_cast<float>(i % 7 - 3) * 0.01f;
    return tensor;
  }
};

TEST_F(PushTest, AnMlpsStepTakesFourMessages) {
  PushedMlp::Build(
      b_.get(), [&](const std::string& name, const Tensor& initial) { return Variable(name, initial); },
      [&](Endpoint handle, const std::string& name) { return Read(handle, DType::kFloat, name); },
      [&](bool ps) { ps ? OnPs() : OnWorker(); });
  Session* const session = Open();
  Tensor x(DType::kFloat, Shape({100, 784}));
  std::fill_n(x.data<float>(), x.num_elements(), 0.5f);
  float last = 1e9f;
  EXPECT_THAT(MessagesOf([&] {
                const float loss = session->Run({{"x", x}}, {"loss"}, {"train"}).value()[0].scalar<float>();
                EXPECT_LT(loss, last);
                last = loss;
              }),
              ElementsAre(Pair("RunGraph", 4)));
  ExpectQuiet();
}

// A variable that is fetched is read when the part that has it ends: after an update that waits for the worker.
void ExpectVariablesAreReadLast(GraphBuilder* b, const std::function<Session*()>& open) {
  b->device = "/job:ps/task:0/device:CPU:0";
  const AttrList attrs = {{"dtype", DType::kFloat}, {"shape", PartialShape({})}};
  const Endpoint steps = b->Op("VariableV2", {}, attrs, "steps");
  b->Op("Assign", {steps, b->Scalar(0.f)}, {}, "init");
  b->device = "/job:worker/task:0/device:CPU:0";
  const Endpoint one = b->Op("Neg", {b->Op("Placeholder", {}, attrs, "x")});
  b->device = "/job:ps/task:0/device:CPU:0";
  b->Op("AssignAdd", {steps, one}, {}, "update");
  Session* const session = open();
  ASSERT_EQ(session->RunTargets({"init"}), absl::OkStatus());
  for (int i = 1; i <= 5; ++i) {
    const std::vector<Tensor> read = session->Run({{"x", Tensor::Scalar(-1.f)}}, {"steps"}, {"update"}).value();
    EXPECT_EQ(read[0].scalar<float>(), static_cast<float>(i));
  }
}

TEST_F(PushTest, FetchedVariablesAreReadLast) {
  ExpectVariablesAreReadLast(b_.get(), [this] { return Open(); });
}
TEST_F(PullTest, FetchedVariablesAreReadLast) {
  ExpectVariablesAreReadLast(b_.get(), [this] { return Open(); });
}

TEST_F(PullTest, AStepWithoutStreamsAsksForItsTensors) {
  const Endpoint w = Variable("w", Tensor::Scalar(3.f));
  OnWorker();
  b_->Op("Mul", {Read(w, DType::kFloat, "w/read"), b_->Scalar(2.f)}, {}, "y");
  Session* const session = Open();
  EXPECT_THAT(MessagesOf([&] { EXPECT_EQ(session->Run({"y"}).value()[0].scalar<float>(), 6); }),
              ElementsAre(Pair("RecvTensor", 2), Pair("RunGraph", 2)));
  ExpectQuiet();
}

TEST_F(PushTest, TensorsOfAllKindsGoToThePsAndBack) {
  const std::vector<Tensor> values = {
      Tensor::Scalar(std::string("text")),      Tensor::FromVector<std::string>({"", "b", std::string(5000, 'c')}),
      Tensor::Of<int64_t>({1, -2, 3}),          Tensor::Of<bool>({true, false}),
      Tensor(DType::kFloat, Shape({0, 3})),     Tensor::Scalar<uint8_t>(200),
      Tensor(DType::kDouble, Shape({300, 300}))};
  std::vector<std::string> fetches;
  std::vector<Feed> feeds;
  for (size_t i = 0; i < values.size(); ++i) {
    OnWorker();
    const Endpoint x = b_->Op("Placeholder", {}, {{"dtype", values[i].dtype()}}, absl::StrCat("x", i));
    const Endpoint sent = b_->Op("Identity", {x});
    OnPs();
    const Endpoint there = b_->Op("Identity", {sent});
    OnWorker();
    fetches.push_back(absl::StrCat("y", i));
    b_->Op("Identity", {there}, {}, fetches.back());
    feeds.emplace_back(absl::StrCat("x", i), values[i]);
  }
  std::fill_n(feeds.back().second.data<double>(), 90000, 0.25);
  const std::vector<Tensor> results = Open()->Run(feeds, fetches).value();
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(results[i].DebugString(5), values[i].DebugString(5));
    EXPECT_EQ(results[i].shape(), values[i].shape());
  }
  EXPECT_EQ(results[6].data<double>()[89999], 0.25);
  ExpectQuiet();
}

TEST_F(PushTest, ThreeTasksExchangeTensors) {
  const Endpoint w = Variable("w", Tensor::Scalar(3.f));
  OnWorker(1);
  const Endpoint a = b_->Op("Mul", {Read(w, DType::kFloat, "w/read"), b_->Scalar(2.f)});
  OnWorker(0);
  const Endpoint c = b_->Add(a, b_->Scalar(1.f));
  OnPs();
  const Endpoint d = b_->Add(c, a);
  OnWorker(1);
  const Endpoint e = b_->Add(d, c);
  OnWorker(0);
  b_->Op("AddV2", {e, d}, {}, "y");
  Session* const session = Open();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(session->Run({"y"}).value()[0].scalar<float>(), 33);
  ExpectQuiet();
}

TEST_F(PushTest, AnErrorAtThePsIsTheStepsAndNamesTheNode) {
  OnWorker();
  const Endpoint x = b_->Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
  const Endpoint sent = b_->Op("Identity", {x});
  OnPs();
  const Endpoint bad = b_->Op("CheckNumerics", {sent}, {{"message", "found it"}}, "check");
  OnWorker();
  b_->Op("Identity", {bad}, {}, "y");
  Session* const session = Open();
  const Status status = session->Run({{"x", Tensor::Scalar(0.f / 0.f)}}, {"y"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("found it"), HasSubstr("check"), HasSubstr("/job:ps")));
  EXPECT_EQ(session->Run({{"x", Tensor::Scalar(2.f)}}, {"y"}).value()[0].scalar<float>(), 2);
  ExpectQuiet();
}

TEST_F(PushTest, WaitsForPushedTensorsAreListedOnBothSides) {
  // The ps waits for worker 0, which waits for worker 1, where a queue is empty.
  On("worker/task:1");
  const AttrList types = {{"component_types", std::vector<DType>{DType::kFloat}}};
  AttrList named = types;
  named.push_back({"shared_name", "numbers"});
  const Endpoint queue = b_->Op("FIFOQueueV2", {}, named, "queue");
  const Endpoint element = b_->Op("QueueDequeueV2", {queue}, types, "take");
  OnWorker(0);
  const Endpoint here = b_->Op("Identity", {element}, {}, "here");
  OnPs();
  b_->Op("Identity", {here}, {}, "y");
  Session* const session = Open();
  BackgroundRun run(session, "y");
  const auto waits_for = [&](int server, const std::string& tensor, const std::string& task) {
    for (const Wait& wait : servers_[server]->worker()->ListWaits()) {
      if (wait.kind == Wait::Kind::kTensor && wait.tensor == tensor && absl::StrContains(wait.peer, task)) return true;
    }
    return false;
  };
  EXPECT_TRUE(Await([&] {
    return waits_for(1, "take", "/job:worker/replica:0/task:1") && waits_for(0, "here", "/job:worker/replica:0/task:0");
  }));
  session->Close().IgnoreError();
  EXPECT_FALSE(run.End().ok());
  ExpectQuiet();
}

// A queue at the ps with a thousand elements, which a step there takes out one by one and counts.
class RepeatTest : public PushTest {
 protected:
  RepeatTest() : RepeatTest(true) {}
  explicit RepeatTest(bool streams) : PushTest(streams) {
    OnPs();
    const AttrList one_int = {{"component_types", std::vector<DType>{DType::kInt32}}};
    AttrList queue_attrs = one_int;
    queue_attrs.push_back({"shared_name", "q"});
    queue_ = b_->Op("FIFOQueueV2", {}, queue_attrs, "q");
    Tensor elements(DType::kInt32, Shape({1000}));
    std::fill_n(elements.data<int32_t>(), 1000, 1);
    b_->AddNode("QueueEnqueueManyV2", std::vector<Endpoint>{queue_, b_->Const(elements)},
                {{"Tcomponents", std::vector<DType>{DType::kInt32}}}, "fill");
    b_->AddNode("QueueCloseV2", std::vector<Endpoint>{queue_}, {}, "close");
    count_ = Variable("count", Tensor::Scalar(0));
    OnPs();
    const Endpoint taken = b_->Op("QueueDequeueV2", {queue_}, one_int, "take");
    b_->AddNode("AssignAddVariableOp", std::vector<Endpoint>{count_, taken}, {{"dtype", DType::kInt32}}, "add");
    Read(count_, DType::kInt32, "count/read");
  }
  // No more will come.
  void Fill() {
    EXPECT_EQ(session_->RunTargets({"fill"}), absl::OkStatus());
    EXPECT_EQ(session_->RunTargets({"close"}), absl::OkStatus());
  }
  std::unique_ptr<Callable> Adding() { return session_->MakeCallable({.targets = {"add"}}).value(); }
  int Count() { return session_->Run({"count/read"}).value()[0].scalar<int32_t>(); }

  Endpoint queue_, count_;
};
class RepeatByCallsTest : public RepeatTest {
 protected:
  RepeatByCallsTest() : RepeatTest(false) {}
};

TEST_F(RepeatTest, AStepAtAPeerIsRepeatedThereUntilItFails) {
  Open();
  Fill();
  const auto adding = Adding();
  const int64_t before = servers_[0]->worker()->parts_finished().count();
  counts_.Take();
  const Status status = adding->Repeat();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("{{node take}}"));
  std::map<std::string, int> counts = counts_.Take();
  // One call for all runs, and perhaps what tells the peer that the step has failed.
  EXPECT_EQ(counts["RunGraph"], 2);
  EXPECT_LE(counts["CleanupGraph"], 2);
  EXPECT_EQ(Count(), 1000);
  // Each run counts as one: whoever looks sees that it goes on.
  EXPECT_GE(servers_[0]->worker()->parts_finished().count() - before, 1000);
  ExpectQuiet();
}

TEST_F(RepeatByCallsTest, WhereNothingStreamsTheMasterRepeatsIt) {
  Open();
  Fill();
  EXPECT_EQ(Adding()->Repeat().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Count(), 1000);
  ExpectQuiet();
}

// As after a lost connection: the runs are calls until it has been made again.
TEST_F(RepeatTest, AnAttemptThatBeginsWithCallsGoesOnAtThePeer) {
  Open();
  RunIdentity run = RunIdentity::OfNewClient();
  run.attempt = 1;
  const auto adding = Adding();
  CancellationManager cancellation;
  Status status;
  std::thread repeating([&] { status = adding->Repeat({.cancellation = &cancellation}, &run); });
  EXPECT_TRUE(Await([&] { return !servers_[0]->worker()->ListWaits().empty(); }));
  cancellation.StartCancel();
  repeating.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);

  Fill();
  ++run.attempt;
  counting_->HideStreams(3);
  counts_.Take();
  status = adding->Repeat({}, &run);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_EQ(counts_.Take()["RunGraph"], 2 * (3 + 1));
  EXPECT_EQ(run.attempt, 2);
  EXPECT_EQ(Count(), 1000);
  ExpectQuiet();
}

TEST_F(RepeatTest, AStepOfTwoTasksIsRepeatedByTheMaster) {
  OnWorker();
  const Endpoint two = b_->Scalar(2);
  OnPs();
  const Endpoint taken = b_->Op("QueueDequeueV2", {queue_}, {{"component_types", std::vector<DType>{DType::kInt32}}});
  const Endpoint local = b_->Op("Mul", {taken, two});
  b_->AddNode("AssignAddVariableOp", std::vector<Endpoint>{count_, local}, {{"dtype", DType::kInt32}}, "add_twice");
  Open();
  Fill();
  EXPECT_EQ(session_->MakeCallable({.targets = {"add_twice"}}).value()->Repeat().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Count(), 2000);
  ExpectQuiet();
}

TEST_F(RepeatTest, ACancelEndsTheRepetitionAndNothingWaitsAnyMore) {
  Open();
  EXPECT_EQ(session_->RunTargets({"fill"}), absl::OkStatus());
  const auto adding = Adding();
  CancellationManager cancellation;
  Status status;
  std::thread repeating([&] { status = adding->Repeat({.cancellation = &cancellation}); });
  EXPECT_TRUE(Await([&] { return Count() == 1000 && !servers_[0]->worker()->ListWaits().empty(); }));
  cancellation.StartCancel();
  repeating.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  ExpectQuiet();
}

TEST_F(RepeatTest, AStepThatNeverWaitsLeavesThreadsToOthers) {
  OnPs();
  b_->AddNode("AssignAddVariableOp", std::vector<Endpoint>{count_, b_->Scalar(1)}, {{"dtype", DType::kInt32}}, "bump");
  Open();
  std::vector<std::thread> repeating;
  CancellationManager cancellation;
  for (int i = 0; i < 8; ++i) {
    repeating.emplace_back([&] {
      EXPECT_EQ(session_->MakeCallable({.targets = {"bump"}}).value()->Repeat({.cancellation = &cancellation}).code(),
                absl::StatusCode::kCancelled);
    });
  }
  EXPECT_TRUE(Await([&] { return Count() > 10'000; }));
  cancellation.StartCancel();
  for (std::thread& thread : repeating) thread.join();
  ExpectQuiet();
}

TEST_F(RepeatTest, AStepThatIsFedIsRefused) {
  OnPs();
  const Endpoint x = b_->Op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape({})}}, "x");
  b_->AddNode("AssignAddVariableOp", std::vector<Endpoint>{count_, x}, {{"dtype", DType::kInt32}}, "add_x");
  Open();
  EXPECT_EQ(session_->MakeCallable({.feeds = {"x"}, .targets = {"add_x"}}).value()->Repeat().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
