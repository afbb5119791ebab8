// Ranks in processes of their own, one of which is killed or stopped.
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "millrace/base/child_process_testing.h"
#include "millrace/collective/blocking.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/net/transport_testing.h"

namespace millrace::collective {
namespace {

using ::testing::HasSubstr;

constexpr char kDirectory[] = "/test.Service/Ports";

// Collects the port of each rank, and tells all when they are complete.
class Directory {
 public:
  explicit Directory(int size) : ports_(size) {
    service_.On("Ports", [this](std::shared_ptr<net::IncomingCall> call) {
      const std::vector<std::string> words = absl::StrSplit(call->request().Flatten(), ' ');
      std::vector<std::shared_ptr<net::IncomingCall>> complete;
      std::string answer;
      {
        MutexLock lock(&mu_);
        ports_[std::stoul(words[0])] = words[1];
        waiting_.push_back(std::move(call));
        if (waiting_.size() < ports_.size()) return;
        complete.swap(waiting_);
        answer = absl::StrJoin(ports_, " ");
      }
      for (const auto& other : complete) other->Reply(net::Bytes::Of(answer));
    });
    listener_ = transport_->Listen("localhost:0", &service_).value();
  }
  int port() const { return listener_->port(); }

 private:
  Mutex mu_;
  std::vector<std::string> ports_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<net::IncomingCall>> waiting_ ABSL_GUARDED_BY(mu_);
  net::TestService service_;
  std::unique_ptr<net::Transport> transport_ = net::NewGrpcTransport();
  std::unique_ptr<net::Listener> listener_;
};

// A rank of a group of processes.
class ProcessRank {
 public:
  ProcessRank(int rank, int size, int directory) {
    listener_ = transport_->Listen("localhost:0", &service_).value();
    net::Answer answer;
    transport_->Connect(absl::StrCat("localhost:", directory))
        ->Call(kDirectory, net::Bytes::Of(absl::StrCat(rank, " ", listener_->port())), {}, answer.Done());
    answer.notification().Wait();
    GroupOptions options{.key = "processes", .rank = rank, .transport = transport_.get()};
    options.ping_interval = absl::Milliseconds(300);
    options.peer_timeout = absl::Seconds(3);
    const std::string ports = answer.result().value().Flatten();
    for (const absl::string_view port : absl::StrSplit(ports, ' '))
      options.ranks.push_back({absl::StrCat("localhost:", port)});
    EXPECT_EQ(options.ranks.size(), size);
    group_ = CollectiveGroup::Make(&service_, options).value();
  }
  ~ProcessRank() {
    group_.reset();
    listener_.reset();
  }

  // All-reduces until one fails; calls `running` after the first.
  Status ReduceUntilError(const std::function<void()>& running) {
    Status status;
    for (int i = 0; status.ok(); ++i) {
      std::fill(values_.begin(), values_.end(), 1.0f);
      status = AllReduce(*group_, ElementsOf(absl::MakeSpan(values_)), Reduction::kSum);
      if (status.ok() && values_.back() != static_cast<float>(group_->size())) return Internal("a wrong sum");
      if (i == 0) running();
    }
    // So that the others hear of it before this process ends.
    EXPECT_EQ(Leave(*group_), status);
    return status;
  }
  Status ReduceAndLeave(int times) {
    for (int i = 0; i < times; ++i) {
      std::fill(values_.begin(), values_.end(), 1.0f);
      MR_RETURN_IF_ERROR(AllReduce(*group_, ElementsOf(absl::MakeSpan(values_)), Reduction::kSum));
      if (values_[i] != static_cast<float>(group_->size())) return Internal("a wrong sum");
    }
    return Leave(*group_);
  }

 private:
  std::vector<float> values_ = std::vector<float>(1'000'000);
  CollectiveService service_;
  std::unique_ptr<net::Transport> transport_ = net::NewLaneTransport(net::NewGrpcTransport());
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<CollectiveGroup> group_;
};

// "what rank size directory".
TEST(CollectiveChild, Run) {
  const char* const argument = ChildProcess::Argument();
  if (argument == nullptr) GTEST_SKIP() << "for other tests";
  const std::vector<std::string> words = absl::StrSplit(argument, ' ');
  ProcessRank rank(std::stoi(words[1]), std::stoi(words[2]), std::stoi(words[3]));
  const Status status =
      words[0] == "leave" ? rank.ReduceAndLeave(20) : rank.ReduceUntilError([] { ChildProcess::Say("running"); });
  ChildProcess::Say(absl::StrCat("ended ", status.ToString()));
}

std::vector<std::unique_ptr<ChildProcess>> StartChildren(const std::string& what, int size, int directory) {
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int rank = 0; rank < size; ++rank)
    children.push_back(std::make_unique<ChildProcess>("CollectiveChild.Run",
                                                      absl::StrCat(what, " ", rank, " ", size, " ", directory)));
  return children;
}

TEST(CollectiveProcesses, RanksThatLeaveMayEndAtOnce) {
  constexpr int kSize = 3;
  Directory directory(kSize);
  const auto children = StartChildren("leave", kSize, directory.port());
  for (const auto& child : children) {
    std::string status;
    ASSERT_TRUE(child->Hears("ended ", &status));
    EXPECT_EQ(status, "OK");
  }
}

void ExpectNamed(const std::vector<int>& victims, bool stop) {
  constexpr int kSize = 3;
  for (const int gone : victims) {
    Directory directory(kSize);
    const auto children = StartChildren("reduce", kSize, directory.port());
    for (const auto& child : children) ASSERT_TRUE(child->Hears("running"));
    stop ? children[gone]->Stop() : children[gone]->Kill();
    for (int rank = 0; rank < kSize; ++rank) {
      if (rank == gone) continue;
      std::string status;
      ASSERT_TRUE(children[rank]->Hears("ended ", &status));
      EXPECT_THAT(status, HasSubstr("UNAVAILABLE"));
      EXPECT_THAT(status, HasSubstr(absl::StrCat("rank ", gone, " ("))) << "on rank " << rank;
    }
  }
}

TEST(CollectiveProcesses, AKilledRankIsNamedByAllOthers) { ExpectNamed({0, 1, 2}, /*stop=*/false); }
TEST(CollectiveProcesses, AStoppedRankIsNamedByAllOthers) { ExpectNamed({1}, /*stop=*/true); }

}  // namespace
}  // namespace millrace::collective
