// Clients that repeat their runs under an identity until they succeed, while messages are lost, connections are cut and
// masters are restarted: every run counts once.
#include "millrace/cluster/sim/sim_training_testing.h"

namespace millrace {
namespace {

class RepeatedRunsTest : public SimClusterTest {};

constexpr int kRunsOfEach = 12;

// Makes its runs one after the other, in as many sessions as it takes.
class RepeatingClient {
 public:
  RepeatingClient(SimCluster* cluster, int index)
      : trainer_(cluster, absl::StrCat("client", index), absl::StrCat("worker", index)),
        run_{.client = cluster->Random() | 1, .number = 1, .oldest = 1} {}

  bool over() const { return run_.number > kRunsOfEach; }
  // Whether it can go on.
  bool is_free() const { return !over() && (call_ == nullptr || call_->done); }
  // Takes the result of the last call and makes the next one.
  void GoOn() {
    if (!is_free()) return;
    if (call_ != nullptr && stepped_) {
      if (call_->status.ok()) {
        run_ = run_.Next();
      } else {
        ++run_.attempt;
        trainer_.client().Forget();
      }
    }
    if (over()) return;
    stepped_ = trainer_.client().has_session();
    trainer_.client().set_run(run_);
    call_ = stepped_ ? trainer_.Step(2, absl::Seconds(20)) : trainer_.Create(absl::Seconds(20));
  }
  int64_t attempts() const { return trainer_.attempted(); }

 private:
  Trainer trainer_;
  RunIdentity run_;
  TicketPtr call_;
  bool stepped_ = false;
};

void ScheduleFault(SimCluster* cluster) {
  net::SimNetwork& network = cluster->network();
  // The ps lives on: it has the state.
  const std::string worker = absl::StrCat("worker", cluster->Random(2));
  const bool restart = cluster->Random(2) == 0;
  const absl::Duration when = absl::Milliseconds(cluster->Random(20'000));
  network.timers()->Schedule(when, [=] {
    if (restart) return cluster->Restart(worker);
    cluster->Cut(worker, "ps0");
  });
  network.timers()->Schedule(when + absl::Milliseconds(cluster->Random(8000)), [=] {
    if (!restart) cluster->Heal(worker, "ps0");
  });
}

int64_t RunSeed(uint64_t seed) {
  SimCluster cluster(seed);
  net::SimNetwork& network = cluster.network();
  Trainer first(&cluster);
  if (!first.Begin()) return 0;
  std::array<std::unique_ptr<RepeatingClient>, 2> clients;
  for (int i = 0; i < 2; ++i) clients[i] = std::make_unique<RepeatingClient>(&cluster, i);
  network.SetOptions({.delayed = 0.05,
                      .max_extra_delay = absl::Milliseconds(200),
                      .lost = 0.03,
                      .reset_after = absl::Seconds(2),
                      .duplicated = seed % 2 == 0 ? 0.02 : 0});
  for (int faults = 0; faults < 6; ++faults) ScheduleFault(&cluster);
  for (int round = 0; round < 1000 && !(clients[0]->over() && clients[1]->over()); ++round) {
    for (auto& client : clients) client->GoOn();
    network.RunUntil([&] { return clients[0]->is_free() || clients[1]->is_free(); }, absl::Minutes(2));
    network.RunFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE(clients[0]->over() && clients[1]->over());
  network.SetOptions({});
  for (const char* worker : {"worker0", "worker1"}) cluster.Heal(worker, "ps0");
  network.RunFor(absl::Seconds(60));  // whatever is still on its way arrives
  Trainer last(&cluster, "reader");
  EXPECT_TRUE(last.Expect(last.Create(), absl::Seconds(30)));
  const TicketPtr read = last.client().Run({}, {"read:0"});
  EXPECT_TRUE(last.Expect(read));
  EXPECT_EQ(read->Value("read:0"), 2 * kRunsOfEach);
  EXPECT_LE(cluster.worker("ps0").task().resources()->runs().size(), 2u);
  PrintLog(&cluster);
  return clients[0]->attempts() + clients[1]->attempts() - 2 * kRunsOfEach;
}

TEST_P(RepeatedRunsTest, EachCountsOnceWhateverIsLost) {
  int64_t repeated = 0;
  const int seeds = ForSeeds(40, [&](uint64_t seed) { repeated += RunSeed(seed); });
  if (std::getenv("MILLRACE_SEED") == nullptr) {
    EXPECT_GT(repeated, 2 * seeds);
  }
}

INSTANTIATE_TEST_SUITE_P(Tensors, RepeatedRunsTest, ::testing::Bool(), PullOrPush);

}  // namespace
}  // namespace millrace
