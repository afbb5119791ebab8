#include "millrace/strategy/group_executor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "millrace/collective/group.h"

namespace millrace {
namespace {

using collective::AlgorithmKind;
using collective::CollectiveGroup;

constexpr AlgorithmKind kAllReduceAlgorithms[] = {AlgorithmKind::kAuto, AlgorithmKind::kRing,
                                                  AlgorithmKind::kHalvingDoubling, AlgorithmKind::kDoubling,
                                                  AlgorithmKind::kTree};

StatusOr<AlgorithmKind> AlgorithmNamed(const std::string& name) {
  std::vector<absl::string_view> names;
  for (const AlgorithmKind kind : kAllReduceAlgorithms) {
    if (collective::AlgorithmName(kind) == name) return kind;
    names.push_back(collective::AlgorithmName(kind));
  }
  return InvalidArgument("there is no all-reduce algorithm '", name, "', only ", absl::StrJoin(names, ", "));
}

class GroupExecutor : public CollectiveExecutor {
 public:
  GroupExecutor(std::shared_ptr<WorkerGroup> workers, absl::Duration timeout)
      : workers_(std::move(workers)), timeout_(timeout) {}

  int rank() const override { return workers_->rank(); }
  int size() const override { return workers_->size(); }

  void Reduce(ShardReduction reduction, Done done) override {
    collective::OperationOptions options{.key = std::move(reduction.key), .timeout = timeout_};
    collective::Elements result = ElementsOf(std::move(reduction.result));
    if (reduction.owners.empty()) {
      const StatusOr<AlgorithmKind> algorithm = AlgorithmNamed(reduction.algorithm);
      if (!algorithm.ok()) return done(algorithm.status());
      options.algorithm = *algorithm;
      return group().AllReduce(std::move(result), collective::Reduction::kSum, options, std::move(done));
    }
    std::vector<collective::ShardValue> values;
    values.reserve(reduction.sums.size());
    for (const ShardSum& sum : reduction.sums) values.push_back({{sum.first, sum.last}, sum.data});
    group().FixedOrderAllReduce(std::move(values), std::move(result), collective::Reduction::kSum,
                                std::move(reduction.owners), options, std::move(done));
  }

  void Broadcast(const std::string& key, CollectiveElements elements, int root, Done done) override {
    group().Broadcast(ElementsOf(std::move(elements)), root, {.key = key, .timeout = timeout_}, std::move(done));
  }

  void Abort(Status why) override { group().Abort(std::move(why)); }

  std::string DebugString() const override { return absl::StrCat("worker ", rank(), " of a group of ", size()); }

 private:
  static collective::Elements ElementsOf(CollectiveElements elements) {
    return {elements.data, elements.count, elements.dtype, std::move(elements.owner)};
  }
  CollectiveGroup& group() const { return *workers_->group(); }

  const std::shared_ptr<WorkerGroup> workers_;
  const absl::Duration timeout_;
};

}  // namespace

RefPtr<CollectiveExecutor> NewGroupExecutor(std::shared_ptr<WorkerGroup> workers, absl::Duration timeout) {
  return MakeRef<GroupExecutor>(std::move(workers), timeout);
}

Status CheckAllReduceAlgorithm(const std::string& name) { return AlgorithmNamed(name).status(); }

}  // namespace millrace
