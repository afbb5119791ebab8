// What every transport does, whichever it is.
#include "millrace/net/transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>

#include "millrace/base/thread_pool.h"
#include "millrace/net/grpc/grpc_transport.h"

namespace millrace::net {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(20);

// Methods with handlers.
class TestService : public Service {
 public:
  using Handler = std::function<void(std::shared_ptr<IncomingCall>)>;

  TestService& On(const std::string& method, Handler handler) {
    methods_.push_back("/test.Service/" + method);
    handlers_.push_back(std::move(handler));
    return *this;
  }
  const std::vector<std::string>& methods() const override { return methods_; }
  void OnCall(int method, std::shared_ptr<IncomingCall> call) override { handlers_[method](std::move(call)); }

 private:
  std::vector<std::string> methods_;
  std::vector<Handler> handlers_;
};

void Echo(std::shared_ptr<IncomingCall> call) { call->Reply(std::move(call->request())); }

// A call's answer, waited for.
class Answer {
 public:
  Channel::Done Done() {
    return [state = state_](StatusOr<Bytes> result) {
      state->result = std::move(result);
      state->done.Notify();
    };
  }
  bool WaitFor(absl::Duration timeout) { return state_->done.WaitFor(timeout); }
  const StatusOr<Bytes>& Get() {
    EXPECT_TRUE(state_->done.WaitFor(kSoon)) << "no answer";
    return state_->result;
  }
  Status status() { return Get().status(); }

 private:
  struct State {
    Notification done;
    StatusOr<Bytes> result = absl::UnknownError("no answer yet");
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class TransportTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Transport> NewTransport() { return NewGrpcTransport(); }
  std::string Address(const Listener& listener) { return absl::StrCat("localhost:", listener.port()); }

  Answer Call(Channel& channel, const std::string& method, Bytes request, CallOptions options = {}) {
    Answer answer;
    calls_.push_back(channel.Call("/test.Service/" + method, std::move(request), options, answer.Done()));
    return answer;
  }

  std::vector<RefPtr<OutgoingCall>> calls_;
};

TEST_P(TransportTest, CallsAreAnswered) {
  auto transport = NewTransport();
  TestService service;
  service.On("Echo", Echo);
  auto listener = transport->Listen("localhost:0", &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto channel = transport->Connect(Address(**listener));
  auto answer = Call(*channel, "Echo", Bytes::Of("hello"));
  ASSERT_TRUE(answer.status().ok()) << answer.status();
  EXPECT_EQ(answer.Get()->Flatten(), "hello");
  auto empty = Call(*channel, "Echo", Bytes());
  ASSERT_TRUE(empty.status().ok()) << empty.status();
  EXPECT_TRUE(empty.Get()->empty());
}

INSTANTIATE_TEST_SUITE_P(All, TransportTest, ::testing::Values("grpc"));

}  // namespace
}  // namespace millrace::net
