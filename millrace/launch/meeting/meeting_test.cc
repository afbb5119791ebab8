#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/launch/meeting/choose_guard.h"
#include "millrace/launch/meeting/join_meeting.h"
#include "millrace/launch/meeting/meeting_place.h"
#include "millrace/net/address.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSecret[] = "a secret of sixteen characters";
constexpr absl::Duration kLong = absl::Seconds(20), kShort = absl::Milliseconds(300);

MeetingPoint OnLoopback(const std::string& label, const std::string& secret = kSecret) {
  MeetingPoint point = {.label = label, .hosts = {"127.0.0.1"}, .ports = {0}};
  point.guard = MakeSecretGuard(secret, label).value();
  return point;
}

// A meeting place that serves until it goes.
class Meeting {
 public:
  explicit Meeting(MeetingPoint point, int size = 3)
      : place_(MeetingPlace::Open({.point = std::move(point), .size = size, .jobs = "jobs"}).value()) {}
  ~Meeting() { End(); }

  MeetingPoint PointOf(MeetingPoint like) const {
    if (like.local.empty()) like.ports = {net::ParseHostPort(place_.name())->port};
    return like;
  }

  // Serves in this thread while `guest` runs in another.
  void While(std::function<void()> guest) {
    std::atomic<bool> done = false;
    std::thread thread([&] {
      guest();
      done = true;
    });
    while (!done) Serve();
    thread.join();
    Serve();
  }

  void Serve() {
    std::vector<pollfd> fds;
    place_.AddTo(&fds);
    poll(fds.data(), fds.size(), 5);
    place_.Serve([this](const Arrival& a) { return taken_[a.hello.rank] ? "two processes" : ""; },
                 [this](Arrival a) {
                   taken_[a.hello.rank] = true;
                   arrivals.push_back(std::move(a));
                 },
                 [this](const std::string& who) { refused.push_back(who); });
  }
  void End() { arrivals.clear(); }

  std::vector<Arrival> arrivals;
  std::vector<std::string> refused;

 private:
  MeetingPlace place_;
  bool taken_[10] = {};
};

MeetingHello Rank(int rank) {
  return {.rank = rank, .size = 3, .jobs = "jobs", .address = "node1", .gpus = "0", .has_gpus = true};
}

TEST(Meeting, ProcessesOfTheJobAreLetInAndTheirChannelIsSealed) {
  const MeetingPoint point = OnLoopback("job 1");
  Meeting meeting(point);
  meeting.While([&] {
    StatusOr<JoinedMeeting> joined = JoinMeeting(meeting.PointOf(point), Rank(2), kLong);
    ASSERT_TRUE(joined.ok()) << joined.status();
    const std::string sealed = joined->channel->out.Seal("to the launcher").value();
    EXPECT_EQ(write(joined->socket.get(), sealed.data(), sealed.size()), static_cast<ssize_t>(sealed.size()));
  });
  ASSERT_EQ(meeting.arrivals.size(), 1);
  EXPECT_THAT(meeting.refused, IsEmpty());
  Arrival& arrival = meeting.arrivals[0];
  EXPECT_EQ(arrival.hello.rank, 2);
  EXPECT_EQ(arrival.hello.address, "node1");
  EXPECT_EQ(arrival.hello.gpus, "0");
  std::string plain;
  pollfd readable = {arrival.socket.get(), POLLIN, 0};
  while (plain.empty()) {
    poll(&readable, 1, 1000);
    char bytes[1000];
    const ssize_t size = read(arrival.socket.get(), bytes, sizeof(bytes));
    ASSERT_GT(size, 0);
    ASSERT_TRUE(arrival.channel->in.Open({bytes, static_cast<size_t>(size)}, &plain).ok());
  }
  EXPECT_EQ(plain, "to the launcher");
}

TEST(Meeting, OnOneHostTheUserIsTheSecret) {
  MeetingPoint point = {.label = "job", .local = absl::StrCat("test ", getpid()), .guard = MakeSameUserGuard()};
  Meeting meeting(point);
  EXPECT_TRUE(absl::IsAlreadyExists(MeetingPlace::Open({.point = point, .size = 1, .jobs = ""}).status()));
  meeting.While([&] { EXPECT_TRUE(JoinMeeting(point, Rank(1), kLong).ok()); });
  EXPECT_EQ(meeting.arrivals.size(), 1);
}

TEST(Meeting, AStrangerAtTheDoorIsRefusedAndNamed) {
  const MeetingPoint point = OnLoopback("job 1");
  Meeting meeting(point);
  MeetingPoint guess = meeting.PointOf(point);
  guess.guard = MakeSecretGuard("another secret of some length", "job 1").value();
  meeting.While([&] {
    const Status status = JoinMeeting(guess, Rank(1), kShort).status();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("rank 1 did not find rank 0 of job 1 within 300ms: 127.0.0.1:"));
  });
  EXPECT_THAT(meeting.arrivals, IsEmpty());
  ASSERT_FALSE(meeting.refused.empty());
  EXPECT_THAT(meeting.refused[0], HasSubstr("127.0.0.1"));
  EXPECT_THAT(meeting.refused[0], HasSubstr("it does not have the job secret"));
}

TEST(Meeting, AnOldRunAtTheMeetingPlaceIsNamed) {
  Meeting meeting(OnLoopback("Slurm step 6.0"));
  const MeetingPoint point = meeting.PointOf(OnLoopback("Slurm step 7.0"));
  meeting.While([&] {
    EXPECT_THAT(JoinMeeting(point, Rank(1), kShort).status().message(), HasSubstr("another run, Slurm step 6.0"));
  });
  EXPECT_THAT(meeting.arrivals, IsEmpty());
}

TEST(Meeting, WhoIsNoMeetingPlaceIsNamed) {
  StatusOr<net::TcpListeners> somebody = net::ListenTcp({"127.0.0.1", 0});
  ASSERT_TRUE(somebody.ok());
  MeetingPoint point = OnLoopback("job");
  point.ports = {somebody->port};
  std::atomic<bool> done = false;
  std::thread thread([&] {
    EXPECT_THAT(JoinMeeting(point, Rank(1), kShort).status().message(), HasSubstr("a stranger, which says 'SSH-2.0"));
    done = true;
  });
  std::vector<Fd> guests;
  while (!done) {
    pollfd fd = {somebody->sockets[0].get(), POLLIN, 0};
    poll(&fd, 1, 5);
    Fd guest = net::AcceptSocket(somebody->sockets[0].get());
    if (guest.ok()) {
      EXPECT_EQ(write(guest.get(), "SSH-2.0-x\r\n", 11), 11);
    }
    guests.push_back(std::move(guest));
  }
  thread.join();
}

TEST(Meeting, RankZeroIsFoundBehindPortsThatOthersHave) {
  const MeetingPoint point = OnLoopback("job");
  Meeting meeting(point);
  MeetingPoint there = meeting.PointOf(point);
  int free = 0;  // where rank 0 is looked for first
  {
    const StatusOr<net::TcpListeners> nobody = net::ListenTcp({"127.0.0.1", 0});
    ASSERT_TRUE(nobody.ok());
    free = nobody->port;
  }
  there.ports.insert(there.ports.begin(), free);
  meeting.While([&] { EXPECT_TRUE(JoinMeeting(there, Rank(1), kLong).ok()); });
  EXPECT_EQ(meeting.arrivals.size(), 1);
}

// As munge's, whose daemon has gone.
class BrokenGuard : public MeetingGuard {
 public:
  std::string name() const override { return "munge"; }
  StatusOr<std::string> Seal(absl::string_view) override { return Unavailable("munge: its daemon does not run"); }
  StatusOr<std::string> Open(absl::string_view) override { return Unavailable("munge: its daemon does not run"); }
};

TEST(Meeting, WhoCannotProveWhoItIsSearchesNoLonger) {
  const MeetingPoint point = OnLoopback("job");
  Meeting meeting(point);
  MeetingPoint there = meeting.PointOf(point);
  there.guard = std::make_unique<BrokenGuard>();
  meeting.While([&] {
    const Status status = JoinMeeting(there, Rank(1), kLong).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("munge: its daemon does not run"));
  });
}

TEST(Meeting, ANameThatDoesNotResolveIsSaid) {
  MeetingPoint point = OnLoopback("job");
  point.hosts = {"a..b"};
  EXPECT_THAT(JoinMeeting(point, Rank(1), kShort).status().message(), HasSubstr("the name does not resolve"));
}

TEST(Meeting, TheSecondAtOnePlaceIsRefusedWithTheReason) {
  const MeetingPoint point = OnLoopback("job");
  Meeting meeting(point);
  const MeetingPoint there = meeting.PointOf(point);
  meeting.While([&] {
    EXPECT_TRUE(JoinMeeting(there, Rank(1), kLong).ok());
    const Status second = JoinMeeting(there, Rank(1), kLong).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
    EXPECT_THAT(second.message(), HasSubstr("two processes"));
  });
  EXPECT_EQ(meeting.refused.size(), 1);
}

TEST(Meeting, TasksWithOtherFlagsAreRefused) {
  const MeetingPoint point = OnLoopback("job");
  Meeting meeting(point);
  const MeetingPoint there = meeting.PointOf(point);
  MeetingHello larger = Rank(1), other = Rank(1);
  larger.size = 4;
  other.jobs = "2 ps";
  meeting.While([&] {
    EXPECT_THAT(JoinMeeting(there, larger, kLong).status().message(), HasSubstr("rank 1 of 4, but there are 3 tasks"));
    EXPECT_THAT(JoinMeeting(there, other, kLong).status().message(), HasSubstr("asked for 2 ps, and rank 0 for jobs"));
  });
}

TEST(Meeting, GarbageAndRepeatedHellosAreRefused) {
  MeetingPoint point = {.label = "job", .local = absl::StrCat("garbage ", getpid()), .guard = MakeSameUserGuard()};
  Meeting meeting(point);
  const auto say = [&](const std::string& bytes) {
    const LocalMeetingAddress address(point.local);
    Fd fd(socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(connect(fd.get(), address.get(), address.size), 0);
    const timeval limit = {.tv_sec = 5, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ASSERT_EQ(write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    char answer[1000];
    while (read(fd.get(), answer, sizeof(answer)) > 0) {
    }
  };
  const auto sized = [](const std::string& text) {
    return std::string{static_cast<char>(text.size()), static_cast<char>(text.size() >> 8), 0, 0} + text;
  };
  MeetingHello repeated = Rank(1);
  repeated.nonce = std::string(32, '0');
  repeated.key = std::string(net::kSealKeySize, 'k');
  meeting.While([&] {
    say("GET / HTTP/1.1\r\n\r\n");
    say(sized("{}"));
    say(sized(repeated.Encode()));
  });
  ASSERT_EQ(meeting.refused.size(), 3);
  EXPECT_THAT(meeting.refused[0], HasSubstr("stranger: it said 'GET"));
  EXPECT_THAT(meeting.refused[1], HasSubstr("malformed hello"));
  EXPECT_THAT(meeting.refused[2], HasSubstr("repeats"));
}

TEST(MeetingPorts, AreTheSameForOneLabelAndOthersForAnother) {
  EXPECT_EQ(MeetingPorts("a"), MeetingPorts("a"));
  EXPECT_NE(MeetingPorts("a"), MeetingPorts("b"));
}

TEST(ChooseMeetingPoint, SaysWhatIsMissing) {
  const Standing elsewhere = {.scheduler = "PMIx job x", .rank = 1, .size = 3, .local_size = 0};
  EXPECT_THAT(ChooseMeetingPoint({}, elsewhere, "").status().message(), HasSubstr("give --meet HOST"));
  const Environment secret = {{kJobSecretVariable, kSecret}};
  const MeetingPoint point = ChooseMeetingPoint(secret, elsewhere, "node7:4444").value();
  EXPECT_THAT(point.hosts, ElementsAre("node7"));
  EXPECT_THAT(point.ports, ElementsAre(4444));
  EXPECT_THAT(ChooseMeetingPoint(secret, elsewhere, "node7").value().ports, testing::SizeIs(8));
  EXPECT_THAT(ChooseMeetingPoint({{kJobSecretVariable, "short"}}, elsewhere, "node7").status().message(),
              HasSubstr("has 5 characters"));
  const Status no_guard = ChooseMeetingPoint({{kMungeSocketVariable, "/nowhere"}}, elsewhere, "node7").status();
  EXPECT_THAT(no_guard.message(), HasSubstr("export MILLRACE_JOB_SECRET="));
  const Standing together = {.scheduler = "x", .rank = 0, .size = 3, .local_size = 3};
  EXPECT_FALSE(ChooseMeetingPoint({}, together, "").value().local.empty());
}

}  // namespace
}  // namespace millrace::launch
