// Groups of ranks in one process, for tests. For tests only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/cluster/sim/manual_timers_testing.h"
#include "millrace/collective/group.h"
#include "millrace/net/inproc/inproc_transport.h"

namespace millrace::collective {

// A clock with timers that a test advances.
class ManualTime {
 public:
  void Use(GroupOptions* options) {
    options->clock = &clock_;
    options->timers = &timers_;
  }
  void PassSeconds(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(absl::Seconds(1));
      timers_.Advance(absl::Seconds(1));
    }
  }

 private:
  VirtualClock clock_;
  ManualTimers timers_;
};

// The outcome of an operation on each rank.
class Outcomes {
 public:
  explicit Outcomes(int ranks) : results_(ranks) {
    for (auto& result : results_) result = std::make_shared<Result>();
  }
  CollectiveGroup::Done Done(int rank) {
    return [result = results_[rank]](Status status) {
      MutexLock lock(&result->mu);
      result->status = std::move(status);
      ++result->calls;
    };
  }
  bool here(int rank) const {
    MutexLock lock(&results_[rank]->mu);
    return results_[rank]->calls > 0;
  }
  bool all_here() const {
    for (size_t rank = 0; rank < results_.size(); ++rank) {
      if (!here(static_cast<int>(rank))) return false;
    }
    return true;
  }
  Status status(int rank) const {
    MutexLock lock(&results_[rank]->mu);
    EXPECT_EQ(results_[rank]->calls, 1) << "rank " << rank;
    return results_[rank]->status;
  }

 private:
  struct Result {
    mutable Mutex mu;
    Status status ABSL_GUARDED_BY(mu) = absl::UnknownError("not over");
    int calls ABSL_GUARDED_BY(mu) = 0;
  };
  std::vector<std::shared_ptr<Result>> results_;
};

// The ranks of a group, each with a transport and a listener of its own.
class TestRanks {
 public:
  using NewTransport = std::function<std::unique_ptr<net::Transport>(int rank)>;
  using Adjust = std::function<void(int rank, GroupOptions* options)>;

  TestRanks(int size, const NewTransport& make, const Adjust& adjust = nullptr) {
    GroupOptions options{.key = "test"};
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Rank>());
      Rank& own = *ranks_.back();
      own.transport = make(rank);
      own.listener = own.transport->Listen("localhost:0", &own.service).value();
      options.ranks.push_back({absl::StrCat("localhost:", own.listener->port()), absl::StrCat("/task:", rank)});
    }
    for (int rank = 0; rank < size; ++rank) {
      options.rank = rank;
      options.transport = ranks_[rank]->transport.get();
      GroupOptions own = options;
      if (adjust != nullptr) adjust(rank, &own);
      ranks_[rank]->group = CollectiveGroup::Make(&ranks_[rank]->service, std::move(own)).value();
    }
  }
  ~TestRanks() {
    for (auto& rank : ranks_) rank->group.reset();
    for (auto& rank : ranks_) rank->listener.reset();
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  CollectiveGroup& operator[](int rank) { return *ranks_[rank]->group; }
  net::Transport& transport(int rank) { return *ranks_[rank]->transport; }
  std::string address(int rank) const { return absl::StrCat("localhost:", ranks_[rank]->listener->port()); }
  // The rank's task ends as if its program had.
  void Destroy(int rank) {
    ranks_[rank]->group.reset();
    ranks_[rank]->listener.reset();
    ranks_[rank]->transport.reset();
  }
  void LeaveGroup(int rank) { ranks_[rank]->group.reset(); }

 private:
  struct Rank {
    std::unique_ptr<net::Transport> transport;
    CollectiveService service;
    std::unique_ptr<net::Listener> listener;
    std::unique_ptr<CollectiveGroup> group;
  };
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Lets rank r be on host r modulo `hosts`, for the choice of algorithms.
inline void ShareHosts(GroupOptions* options, int hosts) {
  for (size_t rank = 0; rank < options->ranks.size(); ++rank)
    options->ranks[rank].host = absl::StrCat("host", static_cast<int>(rank) % hosts);
}

// Ranks on one thread: a message is handled within the call that sends it, so an operation that all ranks have started
// is complete.
class InlineRanks : public TestRanks {
 public:
  explicit InlineRanks(int size, const Adjust& adjust = nullptr)
      : TestRanks(
            size, [network = net::NewInprocNetwork()](int) { return net::NewInprocTransport({.network = network}); },
            adjust) {}
};

// Starts an operation on all ranks: `start` is called for each of them.
inline Outcomes OnAll(TestRanks& ranks, const std::function<void(int rank, CollectiveGroup::Done done)>& start) {
  Outcomes outcomes(ranks.size());
  for (int rank = 0; rank < ranks.size(); ++rank) start(rank, outcomes.Done(rank));
  return outcomes;
}

// Numbers that every type holds exactly, also after they have been added or multiplied over 16 ranks.
inline int ValueOf(int rank, int64_t element) { return 1 + static_cast<int>((rank + element) % 2); }

template <typename T>
std::vector<T> ValuesOf(int rank, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(ValueOf(rank, i)));
  return values;
}

inline double Expected(Reduction reduction, int ranks, int64_t element) {
  double result = ValueOf(0, element);
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = ValueOf(rank, element);
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kMean:
        result += value;
        break;
      case Reduction::kMin:
        result = std::min(result, value);
        break;
      case Reduction::kMax:
        result = std::max(result, value);
        break;
      case Reduction::kProduct:
        result *= value;
        break;
    }
  }
  return reduction == Reduction::kMean ? result / ranks : result;
}

// Numbers whose sum depends on the order in which they are added.
inline std::vector<float> UnevenValues(int seed, int64_t count) {
  std::vector<float> values;
  uint64_t state = static_cast<uint64_t>(seed) * 0x9e3779b97f4a7c15 + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    values.push_back(static_cast<float>(static_cast<int32_t>(state >> 32)) * 1e-7f);
  }
  return values;
}

}  // namespace millrace::collective
