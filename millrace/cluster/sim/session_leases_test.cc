// Clients that vanish: their sessions end, and what they waited for goes to the living.
#include <array>

#include "gmock/gmock.h"
#include "millrace/cluster/sim/sim_training_testing.h"

namespace millrace {
namespace {

using ::testing::IsEmpty;

constexpr absl::Duration kKeepalive = absl::Seconds(10);  // SimOptions
constexpr absl::Duration kGrace = absl::Seconds(30);      // SimClusterOptions
// A session is closed so long after the connection of its client ended: a lease is checked four times in its grace.
const absl::Duration kLongest = kGrace * 1.5 + absl::Seconds(1);

class SessionLeases : public SimClusterTest {};

// The client's machine loses power: nobody hears of it, until its connections are found broken.
void Vanish(SimCluster* cluster, const std::string& host) {
  cluster->network().Hang(host);
  cluster->network().timers()->Schedule(kKeepalive, [cluster, host] { cluster->network().Kill(host); });
}

size_t SessionsOf(SimCluster& cluster) {
  size_t count = 0;
  for (const std::string& task : cluster.tasks()) {
    count += cluster.master(task).sessions().size() + cluster.worker(task).ListSessions().size();
  }
  return count;
}

TEST_P(SessionLeases, AVanishedClientTakesNoElementFromTheLivingAndItsSessionEnds) {
  ForSeeds(40, [](uint64_t seed) {
    SimCluster cluster(seed);
    Trainer living(&cluster, "living", seed % 2 == 0 ? "worker0" : "worker1");
    ASSERT_TRUE(living.Begin());
    const size_t sessions = SessionsOf(cluster);
    Trainer vanishing(&cluster, "vanishing");
    ASSERT_TRUE(vanishing.Expect(vanishing.Create()));
    const TicketPtr taken_first = vanishing.SlowStep();
    cluster.network().RunFor(absl::Milliseconds(20));
    ASSERT_FALSE(taken_first->done);
    Vanish(&cluster, "vanishing");
    cluster.network().RunFor(kKeepalive + absl::Seconds(7));
    EXPECT_THAT(cluster.Leftovers(), IsEmpty());
    const TicketPtr taken = living.SlowStep();
    ASSERT_TRUE(living.Expect(living.client().Run({}, {}, {"put"})));
    ASSERT_TRUE(living.Expect(taken));
    EXPECT_EQ(taken->Value("slow:0"), 6);
    cluster.network().RunFor(kLongest);
    EXPECT_EQ(SessionsOf(cluster), sessions);
    living.ExpectStep(2);
  });
}

TEST_P(SessionLeases, AClientThatIsBackWithinTheGraceKeepsItsSession) {
  ForSeeds(40, [](uint64_t seed) {
    SimCluster cluster(seed);
    Trainer trainer(&cluster);
    ASSERT_TRUE(trainer.Begin());
    const std::string host = cluster.HostOf("worker0");
    cluster.network().Cut("client", host);
    cluster.network().RunFor(absl::Seconds(cluster.Random(39)));
    cluster.network().Heal("client", host);
    cluster.network().RunFor(absl::Minutes(5));
    trainer.ExpectStep(1);
    // Beyond it the session is gone, and the error says why.
    cluster.network().Cut("client", host);
    cluster.network().RunFor(kKeepalive + kLongest);
    cluster.network().Heal("client", host);
    const TicketPtr late = trainer.Step(2);
    ASSERT_TRUE(trainer.client().Wait(late, absl::Minutes(1)));
    EXPECT_TRUE(absl::IsAborted(late->status)) << late->status;
    EXPECT_EQ(SessionsOf(cluster), 0);
  });
}

// Clients of both workers that put elements into a queue and take them out, while some vanish, die or are cut off.
class LeaseStorm {
 public:
  explicit LeaseStorm(uint64_t seed) : cluster_(seed) {
    network().SetOptions({.delayed = 0.05, .max_extra_delay = absl::Milliseconds(200)});
    for (int i = 0; i < kClients; ++i) Hire(i);
  }

  void Run() {
    for (int round = 0; round < 30; ++round) {
      for (int i = 0; i < kClients; ++i) Act(i);
      if (cluster_.Random(3) == 0) Fault(cluster_.Random(kClients));
      network().RunFor(absl::Milliseconds(cluster_.Random(5000)));
      for (int i = 0; i < kClients; ++i) Note(i);
    }
    Finish();
    PrintLog(&cluster_);
  }

 private:
  static constexpr int kClients = 4;
  struct Client {
    std::unique_ptr<Trainer> trainer;
    TicketPtr call = nullptr;
    char what = ' ';  // 'p'ut, 't'ake or 'c'reate
  };

  net::SimNetwork& network() { return cluster_.network(); }
  void Hire(int i) {
    gone_.push_back(std::move(clients_[i].trainer));
    clients_[i] = {.trainer = std::make_unique<Trainer>(&cluster_, absl::StrCat("client", i, ".", ++hired_),
                                                        absl::StrCat("worker", i % 2))};
  }
  void Act(int i) {
    Client& client = clients_[i];
    if (client.call != nullptr) return;
    if (!client.trainer->client().has_session()) {
      client.what = 'c';
      client.call = client.trainer->Create();
      return;
    }
    const int choice = cluster_.Random(5);
    if (choice > 3) return;  // idle
    client.what = choice < 2 ? 'p' : 't';
    client.call = choice < 2 ? client.trainer->client().Run({}, {}, {"put"})
                             : client.trainer->SlowStep(absl::InfiniteDuration(), absl::Seconds(20));
  }
  void Note(int i) {
    Client& client = clients_[i];
    if (client.call == nullptr || !client.call->done) return;
    const Status status = std::exchange(client.call, nullptr)->status;
    Count(client.what, status.ok());
    if (status.ok() || absl::IsDeadlineExceeded(status)) return;
    EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsAborted(status)) << client.what << ": " << status;
    client.trainer->client().Forget();
  }
  void Count(char what, bool ok) {
    if (what == 'p') ++(ok ? put_ : perhaps_put_);
    if (what == 't') ++(ok ? taken_ : perhaps_taken_);
  }
  void Fault(int i) {
    Client& client = clients_[i];
    const std::string host = client.trainer->client().host();
    const std::string task = cluster_.HostOf(absl::StrCat("worker", i % 2));
    const int kind = cluster_.Random(3);
    if (kind == 2) {
      network().Cut(host, task);
      network().timers()->Schedule(absl::Seconds(cluster_.Random(60)),
                                   [this, host, task] { network().Heal(host, task); });
      return;
    }
    if (client.call != nullptr) Count(client.what, /*ok=*/false);
    if (kind == 0) {
      network().Kill(host);
    } else {
      Vanish(&cluster_, host);
    }
    Hire(i);
  }
  void Finish() {
    network().RunFor(kKeepalive + kLongest + absl::Minutes(1));
    for (int i = 0; i < kClients; ++i) {
      Client& client = clients_[i];
      if (client.call != nullptr) {
        EXPECT_TRUE(client.trainer->client().Wait(client.call)) << "a call does not end";
      }
      Note(i);
      network().Kill(client.trainer->client().host());
    }
    network().RunFor(kLongest);
    EXPECT_EQ(SessionsOf(cluster_), 0) << "a session outlives its client";
    EXPECT_THAT(cluster_.Leftovers(), IsEmpty());
    Trainer last(&cluster_, "last");
    ASSERT_TRUE(last.Expect(last.Create()));
    int left = 0;
    for (;; ++left) {
      const TicketPtr take = last.SlowStep(absl::InfiniteDuration(), absl::Seconds(2));
      ASSERT_TRUE(last.client().Wait(take));
      if (!take->status.ok()) break;
    }
    // No element is there twice, and none is lost but with the answer to whoever took it.
    EXPECT_LE(taken_ + left, put_ + perhaps_put_);
    EXPECT_GE(taken_ + left + perhaps_taken_, put_);
  }

  SimCluster cluster_;
  int hired_ = 0;
  std::vector<std::unique_ptr<Trainer>> gone_;
  std::array<Client, kClients> clients_;
  int put_ = 0, perhaps_put_ = 0, taken_ = 0, perhaps_taken_ = 0;
};

TEST_P(SessionLeases, SessionsEndWithTheirClientsAndNoElementIsLostOrDoubled) {
  ForSeeds(60, [](uint64_t seed) { LeaseStorm(seed).Run(); });
}

INSTANTIATE_TEST_SUITE_P(Tensors, SessionLeases, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
