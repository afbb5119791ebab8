#include <algorithm>
#include <utility>

#include "millrace/collective/algorithm.h"

namespace millrace::collective {
namespace {

// Algorithms of some of the ranks, one after another.
class Stages final : public Algorithm {
 public:
  explicit Stages(std::vector<Stage> stages) : stages_(std::move(stages)) {}

  std::vector<int> destinations() const override { return Union(&Algorithm::destinations); }
  std::vector<int> sources() const override { return Union(&Algorithm::sources); }
  int awaited() const override {
    if (at_ == stages_.size()) return -1;
    return stages_[at_].ranks[stages_[at_].algorithm->awaited()];
  }

  Status Start(Exchange& exchange) override { return Begin(exchange); }

  Status OnMessage(const Incoming& message, Exchange& exchange) override {
    const Stage& stage = stages_[at_];
    Translated translated(stage.ranks, exchange);
    MR_RETURN_IF_ERROR(stage.algorithm->OnMessage(message, translated));
    if (stage.algorithm->awaited() >= 0) return absl::OkStatus();
    ++at_;
    return Begin(exchange);
  }

 private:
  class Translated final : public Exchange {
   public:
    Translated(const std::vector<int>& ranks, Exchange& exchange) : ranks_(ranks), exchange_(exchange) {}
    void Send(int to, absl::string_view bytes) override { exchange_.Send(ranks_[to], bytes); }
    void SendOwned(int to, net::Bytes bytes) override { exchange_.SendOwned(ranks_[to], std::move(bytes)); }
    char* Stage(size_t size, absl::Span<const int> readers) override {
      std::vector<int> translated;
      for (const int reader : readers) translated.push_back(ranks_[reader]);
      return exchange_.Stage(size, translated);
    }

   private:
    const std::vector<int>& ranks_;
    Exchange& exchange_;
  };

  // Starts this stage, and those after it for as long as they wait for nobody.
  Status Begin(Exchange& exchange) {
    for (; at_ < stages_.size(); ++at_) {
      const Stage& stage = stages_[at_];
      Translated translated(stage.ranks, exchange);
      MR_RETURN_IF_ERROR(stage.algorithm->Start(translated));
      if (stage.algorithm->awaited() >= 0) break;
    }
    return absl::OkStatus();
  }

  std::vector<int> Union(std::vector<int> (Algorithm::*of)() const) const {
    std::vector<int> ranks;
    for (const Stage& stage : stages_) {
      for (const int rank : (stage.algorithm.get()->*of)()) ranks.push_back(stage.ranks[rank]);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

  const std::vector<Stage> stages_;
  size_t at_ = 0;  // the stage that is running
};

}  // namespace

std::unique_ptr<Algorithm> NewStages(std::vector<Stage> stages) { return std::make_unique<Stages>(std::move(stages)); }

std::unique_ptr<Algorithm> NewHierarchy(Place place, Workspace work, int64_t count,
                                        const std::vector<std::vector<int>>& hosts, const HierarchyOptions& options) {
  std::vector<int> leaders, local;
  int host = 0;
  for (const std::vector<int>& ranks : hosts) {
    if (std::find(ranks.begin(), ranks.end(), place.rank) != ranks.end()) {
      host = static_cast<int>(leaders.size());
      local = ranks;
    }
    leaders.push_back(ranks.front());
  }
  const auto at = std::find(local.begin(), local.end(), place.rank) - local.begin();
  const Place within{static_cast<int>(at), static_cast<int>(local.size())};
  Workspace sums = work;
  if (work.reduction == Reduction::kMean) sums.reduction = Reduction::kSum;
  work.mean_of = place.size;
  const bool small = static_cast<size_t>(count) * SizeOf(work.dtype) <= options.small_bytes;
  std::vector<Stage> stages;
  if (within.size > 1) {
    // Of few elements the leader adds all.
    std::vector<int64_t> bounds = EvenBounds(count, within.size);
    if (small) std::fill(bounds.begin() + 1, bounds.end(), count);
    const DirectOptions direct{.root = 0, .chunk_bytes = options.chunk_bytes, .ahead = options.ahead};
    stages.push_back({NewDirect(within, sums, std::move(bounds), direct), local});
  }
  if (within.rank == 0) stages.push_back({options.across({host, static_cast<int>(leaders.size())}, work), leaders});
  if (within.size > 1) stages.push_back({NewTreeBroadcast(within, work, count, 0, options.chunk_bytes), local});
  return NewStages(std::move(stages));
}

}  // namespace millrace::collective
