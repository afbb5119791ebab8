// The recorder and the player, with a client of Millrace's.
#include <cstring>
#include <functional>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/server.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/session/session.h"
#include "tests/exchanges/player.h"
#include "tests/exchanges/recorder.h"
#include "tests/late/late_device.h"

namespace millrace::exchanges {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ExchangesFile, HasWhatWasWritten) {
  const std::vector<Exchange> written = {{"RunStep", std::string("a\0b", 3), absl::OkStatus(), "answer"},
                                         {"CloseSession", "", Aborted("no such session"), ""}};
  const auto read = Read(Write(written));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].request, written[0].request);
  EXPECT_EQ((*read)[0].response, "answer");
  EXPECT_EQ((*read)[1].status, written[1].status);
}

TEST(ExchangesFile, IsAnErrorWhereverItIsCutOff) {
  const std::string whole = Write({{"RunStep", "request", absl::OkStatus(), "answer"}});
  const size_t begin = Write({}).size();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(Read(whole.substr(0, size)).ok(), size == begin) << size << " of " << whole.size() << " bytes";
  EXPECT_FALSE(Read("something else").ok());
}

// A server with a late GPU, a recorder before it, and what a client's program said there.
class ExchangesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { late::UseLateGpus(1); }
  ExchangesTest() : server_(Server::CreateLocalServer().value()), transport_(net::NewGrpcTransport()) {
    channel_ = transport_->Connect(server_->target().substr(strlen("grpc://")));
    recorder_ = std::make_unique<Recorder>(channel_);
    listener_ = transport_->Listen("127.0.0.1:0", recorder_.get()).value();
  }
  ~ExchangesTest() override { listener_->Stop(); }

  std::unique_ptr<Session> Open() {
    SessionOptions options;
    options.allow_soft_placement = true;
    options.target = absl::StrCat("grpc://127.0.0.1:", listener_->port());
    return Session::Create(options).value();
  }
  // y = x * x, or another op of x, twice, the second time traced.
  std::vector<Exchange> Record(const std::string& device, const std::string& op = "Mul") {
    Graph graph;
    GraphBuilder b(&graph);
    const Endpoint x = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape(Shape())}}, "x");
    b.device = device;
    b.Op(op, op == "Mul" ? std::vector<Endpoint>{x, x} : std::vector<Endpoint>{x}, {{"T", DType::kFloat}}, "y");
    EXPECT_TRUE(b.ok()) << b.status();
    const auto session = Open();
    EXPECT_TRUE(session->Extend(graph).ok());
    for (const bool trace : {false, true}) {
      RunOptions options;
      options.trace = trace;
      std::vector<Tensor> results;
      RunMetadata metadata;
      const Status status = session->Run(options, {{"x:0", Tensor::Scalar(3.0f)}}, {"y:0"}, {}, &results, &metadata);
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(session->Close().ok());
    return recorder_->exchanges().value();
  }
  StatusOr<Played> Play(const std::vector<Exchange>& exchanges) {
    return Player(channel_.get(), {.rtol = 1e-6}, /*has_gpu=*/true).Play(exchanges);
  }

  const std::unique_ptr<Server> server_;
  const std::unique_ptr<net::Transport> transport_;
  std::shared_ptr<net::Channel> channel_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<net::Listener> listener_;
};

// Finds the first answer of this kind whose change `change` makes.
template <typename Message>
void Change(const std::string& method, std::vector<Exchange>* exchanges, const std::function<bool(Message*)>& change) {
  for (Exchange& exchange : *exchanges) {
    Message message;
    if (exchange.method != method || !message.ParseFromString(exchange.response)) continue;
    if (!change(&message)) continue;
    exchange.response = message.SerializeAsString();
    return;
  }
  ADD_FAILURE() << "nothing to change in an answer of " << method;
}

TEST_F(ExchangesTest, WhatWasRecordedIsSaidAgain) {
  const std::vector<Exchange> recorded = Record("/device:GPU:0");
  for (int i = 0; i < 2; ++i) {
    const auto played = Play(recorded);
    ASSERT_TRUE(played.ok()) << played.status();
    EXPECT_EQ(played->exchanges, static_cast<int>(recorded.size()));
    EXPECT_GE(played->gpu_nodes, 1);
  }
}

TEST_F(ExchangesTest, AnotherNumberIsFoundAndNamed) {
  std::vector<Exchange> recorded = Record("/device:GPU:0");
  Change<pb::RunStepResponse>("RunStep", &recorded, [](pb::RunStepResponse* answer) {
    if (answer->tensor_size() != 1) return false;
    pb::TensorProto* const value = answer->mutable_tensor(0)->mutable_tensor();
    value->clear_tensor_content();
    value->clear_float_val();
    value->add_float_val(9.001F);
    return true;
  });
  EXPECT_THAT(Play(recorded).status().message(),
              AllOf(HasSubstr("RunStep: y:0: 1 of 1 elements differ"), HasSubstr("9.001")));
}

TEST_F(ExchangesTest, AnErrorThatIsNoneNowIsFound) {
  std::vector<Exchange> recorded = Record("/device:GPU:0");
  recorded.back().status = Aborted("no such session");
  EXPECT_THAT(Play(recorded).status().message(), HasSubstr("it succeeds, and ended with code 10"));
}

TEST_F(ExchangesTest, ANodeThatAsksForAGpuMustRunThere) {
  EXPECT_THAT(Play(Record("/device:GPU:0", "AsString")).status().message(),
              HasSubstr("RunStep: y asks for a GPU, and ran on /job:localhost/replica:0/task:0/device:CPU:0"));
}

TEST_F(ExchangesTest, SomethingMustRunOnTheGpu) {
  EXPECT_THAT(Play(Record("/device:CPU:0")).status().message(), HasSubstr("none ran on the GPU"));
}

// A server that answers when it is told to.
class HeldChannel : public net::Channel {
 public:
  HeldChannel() : Channel("held") {}
  RefPtr<net::OutgoingCall> Call(const std::string&, net::Bytes, const net::CallOptions&, Done done) override {
    held_.push_back(std::move(done));
    return nullptr;
  }
  void AnswerAll() {
    for (Done& done : std::exchange(held_, {})) done(net::Bytes());
  }

 private:
  std::vector<Done> held_;
};

class EmptyCall : public net::IncomingCall {
 public:
  net::Bytes& request() override { return request_; }
  absl::Time deadline() const override { return absl::InfiniteFuture(); }
  std::string peer() const override { return "a client"; }
  CancellationManager* cancellation() override { return &cancellation_; }
  void Reply(StatusOr<net::Bytes>) override { answered_ = true; }
  bool answered() const override { return answered_; }

 private:
  net::Bytes request_;
  CancellationManager cancellation_;
  bool answered_ = false;
};

TEST(Recorder, RefusesTwoCallsAtOnce) {
  const auto server = std::make_shared<HeldChannel>();
  Recorder recorder(server);
  for (int i = 0; i < 2; ++i) {
    recorder.OnCall(0, std::make_shared<EmptyCall>());
    server->AnswerAll();
  }
  EXPECT_EQ(recorder.exchanges()->size(), 2u);
  for (int i = 0; i < 2; ++i) recorder.OnCall(i, std::make_shared<EmptyCall>());
  server->AnswerAll();
  EXPECT_EQ(recorder.exchanges().status().message(), "ExtendSession was called while CreateSession was in flight");
}

}  // namespace
}  // namespace millrace::exchanges
