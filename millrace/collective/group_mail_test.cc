// Groups whose ranks leave messages and elements in shared memory.
#include <thread>

#include "gtest/gtest.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/thread_state_testing.h"
#include "millrace/collective/blocking.h"
#include "millrace/collective/collective_testing.h"
#include "millrace/collective/group_core.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/net/transport_testing.h"

namespace millrace::collective {
namespace {

std::unique_ptr<net::Transport> NewShmTransport(int /*rank*/) {
  return net::NewLaneTransport(net::NewGrpcTransport(), {.kind = net::LaneKind::kShm});
}

// Ranks that see each other's mailrooms.
class SharingRanks : public TestRanks {
 public:
  explicit SharingRanks(int size, const Adjust& adjust = nullptr) : TestRanks(size, NewShmTransport, adjust) {
    // An operation that needs a link between any two.
    std::vector<std::vector<int32_t>> from(size, std::vector<int32_t>(size)), to = from;
    Wait(OnAll(*this, [&](int rank, auto done) {
      (*this)[rank].AllToAll(ElementsOf(absl::MakeSpan(from[rank])), ElementsOf(absl::MakeSpan(to[rank])), {},
                             std::move(done));
    }));
    EXPECT_TRUE(net::WaitUntil([&] {
      for (int rank = 0; rank < size; ++rank) {
        const GroupCore& core = (*this)[rank].core();
        for (int other = 0; other < size; ++other) {
          if (other != rank && (core.MailboxOf(other) == nullptr || !core.SeesSlots(other))) return false;
        }
      }
      return true;
    }));
  }

  void Wait(const Outcomes& outcomes) {
    ASSERT_TRUE(net::WaitUntil([&] { return outcomes.all_here(); })) << "no end";
    for (int rank = 0; rank < size(); ++rank) EXPECT_TRUE(outcomes.status(rank).ok()) << outcomes.status(rank);
  }

  // How many of a rank's slots somebody has written to. All must be free.
  int UsedSlots(int rank) {
    Mailroom* const room = (*this)[rank].core().mailroom();
    std::vector<char*> slots;
    for (int i = 0; i < Mailroom::kSlots; ++i) slots.push_back(room->TakeSlot());
    int used = 0;
    for (const char* const slot : slots) {
      if (slot == nullptr) {
        ADD_FAILURE() << "a slot of rank " << rank << " is still in use";
        continue;
      }
      used += std::any_of(slot, slot + Mailroom::kSlotBytes, [](char byte) { return byte != 0; });
      room->ReturnSlot(slot);
    }
    return used;
  }
};

template <typename T>
std::vector<std::vector<T>> Uneven(int ranks, int64_t count) {
  std::vector<std::vector<T>> values;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> uneven = UnevenValues(rank, count);
    values.emplace_back(uneven.begin(), uneven.end());
  }
  return values;
}

// By threads that wait if `blocking`. The bytes must be those of ranks that share nothing.
template <typename T>
void ExpectSameBytes(SharingRanks& sharing, InlineRanks& apart, int64_t count, Reduction reduction, bool blocking) {
  auto values = Uneven<T>(sharing.size(), count), expected = values;
  const OperationOptions options{.algorithm = AlgorithmKind::kDirect};
  OnAll(apart, [&](int rank, auto done) {
    apart[rank].AllReduce(ElementsOf(absl::MakeSpan(expected[rank])), reduction, options, std::move(done));
  });
  std::vector<std::thread> threads;
  sharing.Wait(OnAll(sharing, [&](int rank, CollectiveGroup::Done done) {
    const Elements elements = ElementsOf(absl::MakeSpan(values[rank]));
    if (!blocking) return sharing[rank].AllReduce(elements, reduction, options, std::move(done));
    threads.emplace_back([&, rank, elements, done = std::move(done)]() mutable {
      done(AllReduce(sharing[rank], elements, reduction, options));
    });
  }));
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < sharing.size(); ++rank) {
    ASSERT_EQ(std::memcmp(values[rank].data(), expected[0].data(), sizeof(T) * static_cast<size_t>(count)), 0)
        << count << " " << DTypeOf<T>() << " by " << ReductionName(reduction) << ", rank " << rank;
  }
}

TEST(SharedSlots, AnAllReduceThroughThemGivesTheSameBytes) {
  for (const int size : {2, 3, 4}) {
    const auto adjust = [](int, GroupOptions* options) { options->chunk_bytes = 100000; };
    SharingRanks sharing(size, adjust);
    InlineRanks apart(size, adjust);
    EXPECT_EQ(sharing.UsedSlots(0), 0);
    constexpr int64_t kMost = Mailroom::kSlotBytes / sizeof(float);
    for (const bool blocking : {true, false}) {
      for (const int64_t count : {int64_t{5000}, int64_t{100003}, kMost})
        ExpectSameBytes<float>(sharing, apart, count, Reduction::kMean, blocking);
      ExpectSameBytes<half>(sharing, apart, 70001, Reduction::kSum, blocking);
      ExpectSameBytes<double>(sharing, apart, 70001, Reduction::kMax, blocking);
    }
    for (int rank = 0; rank < size; ++rank) EXPECT_GT(sharing.UsedSlots(rank), 0);
    ExpectSameBytes<float>(sharing, apart, kMost + 1, Reduction::kSum, /*blocking=*/true);  // too large for a slot
  }
}

TEST(SharedSlots, OperationsThatFindNoneLendTheirMemory) {
  constexpr int kSize = 3, kOperations = 4 * Mailroom::kSlots, kRounds = 5;
  SharingRanks ranks(kSize);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::vector<std::vector<float>>> values(kSize);
    std::vector<Outcomes> outcomes;
    for (int i = 0; i < kOperations; ++i) outcomes.emplace_back(kSize);
    // One rank after the other starts all of them, so that all are in flight on the first.
    for (int rank = 0; rank < kSize; ++rank) {
      for (int i = 0; i < kOperations; ++i) values[rank].push_back(ValuesOf<float>(rank, 50000 + i));
      for (int i = 0; i < kOperations; ++i)
        ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[rank][i])), Reduction::kSum, {}, outcomes[i].Done(rank));
    }
    for (int i = 0; i < kOperations; ++i) {
      ranks.Wait(outcomes[i]);
      for (int rank = 0; rank < kSize; ++rank) {
        for (int64_t at = 0; at < 50000 + i; ++at) ASSERT_EQ(values[rank][i][at], Expected(Reduction::kSum, kSize, at));
      }
    }
  }
  EXPECT_EQ(ranks.UsedSlots(0), Mailroom::kSlots);
  for (int rank = 1; rank < kSize; ++rank) EXPECT_GT(ranks.UsedSlots(rank), 0);
}

TEST(SharedSlots, AHierarchyUsesThemWithinItsHosts) {
  constexpr int kSize = 4;
  SharingRanks ranks(kSize, [](int, GroupOptions* options) { ShareHosts(options, 2); });
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < kSize; ++rank) values.push_back(ValuesOf<float>(rank, 100000));
  ranks.Wait(OnAll(ranks, [&](int rank, auto done) {
    ranks[rank].AllReduce(ElementsOf(absl::MakeSpan(values[rank])), Reduction::kSum,
                          {.algorithm = AlgorithmKind::kHierarchy}, std::move(done));
  }));
  for (int64_t i = 0; i < 100000; ++i) ASSERT_EQ(values[3][i], Expected(Reduction::kSum, kSize, i));
  EXPECT_GT(ranks.UsedSlots(3), 0);
}

// A thread of rank 0 waits for rank 1 alone.
class WaitForOneRank : public ::testing::Test {
 protected:
  static constexpr int kSize = 3;

  void SetUp() override {
    Start(2, first_);  // the thread finds its messages before it waits
    thread_ = std::thread([this] {
      thread_number_ = ThreadState::Here();
      first_.Done(0)(AllReduce(ranks_[0], ElementsOf(absl::MakeSpan(values_[0])), Reduction::kSum, kOptions));
    });
    ASSERT_TRUE(net::WaitUntil([&] { return thread_number_ != 0 && ThreadState(thread_number_).blocked(); }));
  }
  void TearDown() override { thread_.join(); }
  void Start(int rank, Outcomes& outcomes) {
    ranks_[rank].AllReduce(ElementsOf(absl::MakeSpan(values_[rank])), Reduction::kSum, kOptions, outcomes.Done(rank));
  }

  const OperationOptions kOptions{.algorithm = AlgorithmKind::kDirect};
  SharingRanks ranks_{kSize};
  // More than a quick operation has.
  std::vector<std::vector<float>> values_{kSize, std::vector<float>(10000, 1)};
  Outcomes first_{kSize};
  std::atomic<pid_t> thread_number_{0};
  std::thread thread_;
};

TEST_F(WaitForOneRank, IsNotWokenByTheOthers) {
  const int64_t before = ThreadState(thread_number_).times_blocked();
  constexpr int kAhead = 40;
  std::vector<Outcomes> outcomes(kAhead, Outcomes(kSize));
  std::vector<std::vector<std::vector<int32_t>>> ahead(kAhead, {kSize, std::vector<int32_t>(10)});
  const auto start = [&](int rank, int i) {
    outcomes[i] = rank == 2 ? Outcomes(kSize) : outcomes[i];
    ranks_[rank].AllReduce(ElementsOf(absl::MakeSpan(ahead[i][rank])), Reduction::kSum, {}, outcomes[i].Done(rank));
  };
  for (int i = 0; i < kAhead; ++i) {
    start(2, i);
    ASSERT_TRUE(net::WaitUntil([&] { return ThreadState(thread_number_).blocked(); }));
  }
  EXPECT_LT(ThreadState(thread_number_).times_blocked() - before, kAhead / 4);
  Start(1, first_);
  ranks_.Wait(first_);
  for (const int rank : {1, 0}) {
    for (int i = 0; i < kAhead; ++i) start(rank, i);
  }
  for (const Outcomes& outcome : outcomes) ranks_.Wait(outcome);
}

TEST_F(WaitForOneRank, TakesWhatIsForAnOperationThatWasStartedMeanwhile) {
  // Rank 0 needs rank 2 alone for it.
  std::vector<std::vector<float>> values(kSize, std::vector<float>(100));
  values[2][99] = 7;
  Outcomes second(kSize);
  const auto broadcast = [&](int rank) {
    ranks_[rank].Broadcast(ElementsOf(absl::MakeSpan(values[rank])), 2, {}, second.Done(rank));
  };
  broadcast(0);
  broadcast(2);
  EXPECT_TRUE(net::WaitUntil([&] { return second.here(0); }));
  EXPECT_EQ(values[0][99], 7);
  EXPECT_FALSE(first_.here(0));
  Start(1, first_);
  broadcast(1);
  ranks_.Wait(first_);
  ranks_.Wait(second);
}

}  // namespace
}  // namespace millrace::collective
