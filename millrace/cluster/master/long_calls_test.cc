// Which calls tell their transport that they work for long: others' calls wait behind those that should and do not.
#include <atomic>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/cluster/server.h"
#include "millrace/cluster/task_service.h"
#include "millrace/net/bytes.h"

namespace millrace {
namespace {

class FakeCall : public net::IncomingCall {
 public:
  explicit FakeCall(net::Bytes request) : request_(std::move(request)) {}
  net::Bytes& request() override { return request_; }
  absl::Time deadline() const override { return absl::InfiniteFuture(); }
  std::string peer() const override { return "a test"; }
  CancellationManager* cancellation() override { return &cancellation_; }
  void RunsLong() override { ran_long_ = true; }
  bool answered() const override { return answered_.HasBeenNotified(); }
  void Reply(StatusOr<net::Bytes> answer) override {
    answer_ = std::move(answer);
    answered_.Notify();
  }
  StatusOr<net::Bytes> Wait() {
    answered_.Wait();
    return answer_;
  }
  bool ran_long() const { return ran_long_; }

 private:
  net::Bytes request_;
  CancellationManager cancellation_;
  std::atomic<bool> ran_long_{false};
  StatusOr<net::Bytes> answer_ = Internal("not answered");
  Notification answered_;
};

class LongCallsTest : public testing::Test {
 protected:
  std::shared_ptr<FakeCall> Call(const std::string& method, net::Bytes request) {
    const auto call = std::make_shared<FakeCall>(std::move(request));
    const auto& methods = service_.methods();
    const auto found = std::find(methods.begin(), methods.end(), "/tensorflow.MasterService/" + method);
    service_.OnCall(static_cast<int>(found - methods.begin()), call);
    EXPECT_TRUE(call->Wait().ok()) << call->Wait().status();
    return call;
  }

  // A session whose graph has `nodes` nodes that do nothing; "first" is one of them.
  std::shared_ptr<FakeCall> CreateSession(int nodes) {
    pb::CreateSessionRequest request;
    for (int i = 0; i < nodes; ++i) {
      pb::NodeDef* node = request.mutable_graph_def()->add_node();
      node->set_name(i == 0 ? "first" : absl::StrCat("node_", i));
      node->set_op("NoOp");
    }
    const auto call = Call("CreateSession", net::Serialize(request));
    pb::CreateSessionResponse response;
    EXPECT_TRUE(net::Parse(*call->Wait(), &response).ok());
    session_ = response.session_handle();
    return call;
  }

  std::shared_ptr<FakeCall> RunFirst() {
    return Call("RunStep", EncodeRunStep({.session_handle = session_,
                                          .feeds = {},
                                          .fetches = {},
                                          .targets = {"first"},
                                          .options = {},
                                          .partial_run_handle = {}})
                               .value());
  }

  const std::unique_ptr<Server> server_ = Server::CreateLocalServer().value();
  TaskService service_{server_->master(), server_->worker(), Clock::Real()};
  std::string session_;
};

TEST_F(LongCallsTest, ASessionWithALargeGraphRunsLong) {
  EXPECT_FALSE(CreateSession(10)->ran_long());
  EXPECT_TRUE(CreateSession(10000)->ran_long());
}

TEST_F(LongCallsTest, AStepRunsLongWhereItIsCompiledOnly) {
  CreateSession(1);
  EXPECT_TRUE(RunFirst()->ran_long());
  // Once in a while the machine makes a short step a long one, and so the next is taken for one.
  bool all = true;
  for (int i = 0; i < 100 && all; ++i) all = RunFirst()->ran_long();
  EXPECT_FALSE(all);
}

}  // namespace
}  // namespace millrace
