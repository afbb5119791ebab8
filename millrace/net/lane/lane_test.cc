// The behaviour of a lane without faults.
#include <dirent.h>

#include <atomic>

#include "absl/strings/match.h"
#include "millrace/base/process_usage.h"
#include "millrace/net/lane/lane_channel.h"
#include "millrace/net/lane/lane_testing.h"
#include "millrace/net/received_buffer.h"
#include "millrace/net/tls/certificate_authority.h"

namespace millrace::net {
namespace {

int OpenDescriptors() {
  int count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(LaneKindTest, NamesAreRead) {
  for (const char* name : {"auto", "shm", "tcp", "grpc"}) EXPECT_EQ(LaneKindName(ParseLaneKind(name).value()), name);
  EXPECT_EQ(ParseLaneKind("ucx").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(LaneTest, CallsOfEveryStepTakeTheLaneAndOthersDoNot) {
  StartWithLane();
  EXPECT_EQ(Outgoing(*client_).kind, "shm");
  EXPECT_EQ(Outgoing(*client_).why_not_better, "");
  const uint64_t before = Outgoing(*client_).calls;
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  EXPECT_EQ(Outgoing(*client_).calls, before + 1);
  Answer answer;
  channel_->Call(TestService::FullName("Echo"), {}, {}, answer.Done());
  answer.notification().Wait();
  EXPECT_TRUE(answer.result().ok()) << answer.status();
  EXPECT_EQ(Outgoing(*client_).calls, before + 1);
  // The server sees it too.
  bool found = false;
  for (const PeerStatus& peer : server_->status().peers)
    found |= !peer.outgoing && peer.kind == "shm" && peer.calls == before + 1;
  EXPECT_TRUE(found);
}

TEST_F(LaneTest, TcpIsTakenWhereItIsAskedForOrTheOnlyWay) {
  StartWithLane({}, {.kind = LaneKind::kTcp});
  EXPECT_EQ(Outgoing(*client_).kind, "tcp");
  channel_.reset();
  listener_.reset();
  StartWithLane({.kind = LaneKind::kTcp});
  EXPECT_EQ(Outgoing(*client_).kind, "tcp");
  EXPECT_TRUE(absl::StrContains(Outgoing(*client_).why_not_better, "Unix socket"));
}

TEST_F(LaneTest, ATaskThatWasToldToUseShmNeitherOpensNorDialsTcp) {
  Start({.kind = LaneKind::kShm}, {.kind = LaneKind::kTcp});
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  ASSERT_TRUE(WaitUntil([&] { return absl::StrContains(Outgoing(*client_).why_not_better, "no TCP port"); }))
      << Outgoing(*client_).kind;
  channel_.reset();
  listener_.reset();
  Start({.kind = LaneKind::kTcp}, {.kind = LaneKind::kShm});
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  ASSERT_TRUE(WaitUntil([&] { return absl::StrContains(Outgoing(*client_).why_not_better, "told to use shm"); }))
      << Outgoing(*client_).kind;
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  EXPECT_EQ(Outgoing(*client_).kind, "grpc");
}

std::shared_ptr<const TlsContext> ContextOf(const CertificateAuthority& authority) {
  return TlsContext::Make(authority.Issue("a task", {"localhost"}, CertificateRole::kTask).value()).value();
}

TEST_F(LaneTest, ALaneBetweenHostsIsEncrypted) {
  const auto authority = CertificateAuthority::Make("a job").value();
  StartWithLane({.kind = LaneKind::kTcp, .tls = ContextOf(*authority)},
                {.kind = LaneKind::kTcp, .tls = ContextOf(*authority)});
  EXPECT_EQ(Outgoing(*client_).kind, "tcp");
  for (const size_t size : {size_t{1}, size_t{100'000}, size_t{50'000'000}}) {
    const std::string text = Pattern(size);
    StatusOr<Bytes> answer = CallOn(*channel_, "Echo", Bytes::Of(text));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->Flatten() == text);
  }
}

TEST_F(LaneTest, WhoKnowsTheSecretButHasNoCertificateGetsNoEncryptedLane) {
  const auto authority = CertificateAuthority::Make("a job").value();
  const auto stranger = CertificateAuthority::Make("a job").value();
  for (const auto& tls : {std::shared_ptr<const TlsContext>(), ContextOf(*stranger)}) {
    Start({.kind = LaneKind::kTcp, .tls = ContextOf(*authority)}, {.kind = LaneKind::kTcp, .tls = tls});
    EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
    ASSERT_TRUE(WaitUntil([&] { return server_->status().refused_connections > 0; }));
    EXPECT_TRUE(CallOn(*channel_, "Echo").ok()) << "over gRPC";
    EXPECT_EQ(Outgoing(*client_).kind, "grpc");
    channel_ = nullptr;
    listener_ = nullptr;
  }
}

TEST_F(LaneTest, APeerWithoutLanesIsUsedOverGrpcAndAskedOnce) {
  std::atomic<int> asked{0};
  TestService service;
  service.On("Echo", Echo);
  class WithOffer : public Service {
   public:
    WithOffer(TestService* service, std::atomic<int>* asked)
        : service_(service), asked_(asked), methods_(service->methods()) {
      methods_.push_back(kOfferMethod);
    }
    const std::vector<std::string>& methods() const override { return methods_; }
    void OnCall(int method, std::shared_ptr<IncomingCall> call) override {
      if (method == 0) return service_->OnCall(method, std::move(call));
      ++*asked_;
      call->Reply(Unimplemented("no such method"));
    }
    TestService* service_;
    std::atomic<int>* asked_;
    std::vector<std::string> methods_;
  } with_offer(&service, &asked);
  auto plain = NewGrpcTransport();
  auto listener = plain->Listen("localhost:0", &with_offer);
  ASSERT_TRUE(listener.ok()) << listener.status();
  client_ = NewLane();
  channel_ = client_->Connect(absl::StrCat("localhost:", (*listener)->port()));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(CallOn(*channel_, "Echo", Bytes::Of("x"))->Flatten(), "x");
  ASSERT_TRUE(WaitUntil([&] { return Outgoing(*client_).why_not_better == "the peer has no step lanes"; }));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(Outgoing(*client_).kind, "grpc");
  EXPECT_EQ(channel_->streaming(), nullptr);
}

TEST_F(LaneTest, LargePiecesArriveInAlignedMemoryOfTheirOwn) {
  for (const LaneKind kind : {LaneKind::kShm, LaneKind::kTcp}) {
    StartWithLane({.kind = kind}, {.kind = kind});
    Bytes request = Bytes::Of("head");
    request.Append(Bytes::Of(Pattern(1'000'000)));
    request.Append(Bytes::Of("tail"));
    auto answer = CallOn(*channel_, "Echo", request);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(answer->Flatten() == request.Flatten());
    ASSERT_EQ(answer->pieces().size(), 3);
    const Bytes::Piece& piece = answer->pieces()[1];
    const auto* buffer = dynamic_cast<const ReceivedBuffer*>(piece.owner.get());
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(buffer->size(), 1'000'000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.data.data()) % 64, 0);
    channel_.reset();
    listener_.reset();
  }
}

TEST_F(LaneTest, WhereMemoryCannotBeReadItGoesThroughTheSocket) {
  const std::string text = Pattern(3'000'000);
  for (const bool at_server : {false, true}) {
    StartWithLane({.read_memory = at_server}, {.read_memory = !at_server});
    EXPECT_EQ(Outgoing(*client_).kind, "shm");
    EXPECT_TRUE(absl::StrContains(Outgoing(*client_).why_not_better, "through the Unix socket"))
        << Outgoing(*client_).why_not_better;
    for (int i = 0; i < 3; ++i) {
      auto answer = CallOn(*channel_, "Echo", Bytes::Of(text));
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_TRUE(answer->Flatten() == text);
    }
    channel_.reset();
    listener_.reset();
  }
}

TEST_F(LaneTest, HandlersThatRunLongHoldNobodyBack) {
  Notification go_on;
  std::atomic<int> running{0};
  service_.On("Long", [&](std::shared_ptr<IncomingCall> call) {
    ++running;
    go_on.Wait();
    call->Reply(Bytes());
  });
  StartWithLane({.threads = 2});
  std::vector<Answer> answers(20);
  for (Answer& answer : answers) channel_->Call(TestService::FullName("Long"), {}, {.every_step = true}, answer.Done());
  EXPECT_TRUE(WaitUntil([&] { return running == 20; })) << running;
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  go_on.Notify();
  for (Answer& answer : answers) {
    answer.notification().Wait();
    EXPECT_TRUE(answer.result().ok()) << answer.status();
  }
}

TEST_F(LaneTest, MessagesOfMoreThanTwoGigabytesArrive) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer makes gigabytes take minutes";
#endif
  const size_t size = (size_t{1} << 31) + 12'345;
  if (AvailableMemory() < 4 * size)
    GTEST_SKIP() << "this machine has less than the " << (4 * size >> 30)
                 << " GB free that the message and its copies take";
  std::atomic<uint64_t> sum{0};
  service_.On("Sum", [&](std::shared_ptr<IncomingCall> call) {
    for (const Bytes::Piece& piece : call->request().pieces())
      sum += piece.data.size() + piece.data.front() + piece.data.back();
    call->Reply(Bytes());
  });
  for (const LaneKind kind : {LaneKind::kShm, LaneKind::kTcp}) {
    StartWithLane({}, {.kind = kind});
    RefPtr<Buffer> buffer = Allocator::Heap()->Allocate(size);
    ASSERT_TRUE(buffer);
    char* const data = static_cast<char*>(buffer->data());
    data[0] = 1;
    data[size - 1] = 2;
    Bytes request;
    request.Append({data, size}, buffer);
    sum = 0;
    // Its copies take minutes where other programs have the cores.
    auto answer = CallOn(*channel_, "Sum", std::move(request), absl::Minutes(10));
    EXPECT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(sum, size + 3);
    channel_.reset();
    listener_.reset();
  }
}

// Counts what is alive.
class Counted : public RefCounted {
 public:
  Counted(std::atomic<int>* alive, size_t size) : text(size, 'c'), alive_(alive) { ++*alive_; }
  const std::string text;

 private:
  ~Counted() override { --*alive_; }
  std::atomic<int>* const alive_;
};

TEST_F(LaneTest, AHundredThousandCallsLeakNothing) {
  StartWithLane();
  std::atomic<int> alive{0};
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  const int descriptors = OpenDescriptors();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kCalls = 5'000;
#else
  constexpr int kCalls = 100'000;
#endif
  std::atomic<int> open{0};
  std::atomic<int> failed{0};
  for (int i = 0; i < kCalls; ++i) {
    const size_t size = i % 100 == 0 ? 200'000 : i % 10 == 0 ? 5'000 : 10;
    auto owner = MakeRef<Counted>(&alive, size);
    Bytes request;
    request.Append(owner->text, owner);
    ++open;
    auto call = channel_->Call(TestService::FullName("Echo"), std::move(request),
                               {.timeout = absl::Minutes(10), .every_step = true}, [&, size](StatusOr<Bytes> answer) {
                                 if (answer.ok() ? answer->size() != size : !absl::IsCancelled(answer.status()))
                                   ++failed;
                                 --open;
                               });
    if (i % 1000 == 7) call->Cancel();
    if (i % 50 != 49) continue;
    ASSERT_TRUE(WaitUntil([&] { return open == 0; }));
  }
  EXPECT_TRUE(WaitUntil([&] { return open == 0; }));
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(WaitUntil([&] { return alive == 0; })) << alive << " requests are kept";
  EXPECT_TRUE(
      WaitUntil([&] { return server_->status().received_blocks == 0 && client_->status().received_blocks == 0; }));
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

}  // namespace
}  // namespace millrace::net
