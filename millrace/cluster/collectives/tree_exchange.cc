#include <atomic>
#include <utility>

#include "millrace/cluster/collectives/exchange.h"
#include "millrace/cluster/collectives/ring_layout.h"

namespace millrace {
namespace {

// A broadcast: one tree after the other of those that this member is in.
class TreeExchange : public std::enable_shared_from_this<TreeExchange> {
 public:
  explicit TreeExchange(std::shared_ptr<CollectiveRun> run)
      : run_(std::move(run)), trees_(BroadcastTrees(run_->group(), run_->source_rank())) {}

  Status Start() {
    const CollectiveCall& call = run_->call();
    const bool is_source = run_->rank() == run_->source_rank();
    if (is_source != call.is_source) {
      return Internal("Instance ", call.instance_key, " has another source, ",
                      run_->group().member(run_->source_rank()).device.name());
    }
    if (is_source) CopyToElements(Value(), call.output, 0);
    Begin(0);
    return absl::OkStatus();
  }

 private:
  net::Bytes Value() const {
    const CollectiveCall& call = run_->call();
    const Tensor& tensor = call.is_source ? call.input : call.output;
    return ElementBytes(tensor, 0, tensor.num_elements());
  }
  std::string Key(size_t tree, int from, int to) const {
    return absl::StrCat(run_->buffer_prefix(), ":", tree, ":", from, ":", to);
  }

  void Begin(size_t at) {
    while (at < trees_.size() && trees_[at].PositionOf(run_->rank()) < 0) ++at;
    if (at == trees_.size()) return run_->Finish(absl::OkStatus());
    const BroadcastTree& tree = trees_[at];
    const int position = tree.PositionOf(run_->rank());
    const int from = tree.ReceivesFrom(position);
    if (from < 0) return Forward(at, position);
    const Tensor& output = run_->call().output;
    run_->Receive(tree.members[from], Key(at, from, position), output.TotalBytes(),
                  [self = shared_from_this(), at, position, &output](const net::Bytes& bytes) {
                    self->run_->BeforeWork(bytes.size());
                    CopyToElements(bytes, output, 0);
                    self->Forward(at, position);
                  });
  }

  void Forward(size_t at, int position) {
    const BroadcastTree& tree = trees_[at];
    const std::vector<int> targets = tree.SendsTo(position);
    if (targets.empty()) return Begin(at + 1);
    open_.store(static_cast<int>(targets.size()));
    for (const int to : targets) {
      run_->Send(tree.members[to], Key(at, position, to), Value(), [self = shared_from_this(), at] {
        if (self->open_.fetch_sub(1, std::memory_order_acq_rel) == 1) self->Begin(at + 1);
      });
    }
  }

  const std::shared_ptr<CollectiveRun> run_;
  const std::vector<BroadcastTree> trees_;
  std::atomic<int> open_{0};  // members that have not taken the value yet, in the current tree
};

// Rows between all pairs of members.
class AllToAllExchange : public std::enable_shared_from_this<AllToAllExchange> {
 public:
  explicit AllToAllExchange(std::shared_ptr<CollectiveRun> run) : run_(std::move(run)) {}

  Status Start() {
    const CollectiveCall& call = run_->call();
    const int size = run_->group().size();
    if (call.input.rank() < 1 || call.input.dim(0) != size) {
      return InvalidArgument("input to all-to-all first dimension size (",
                             call.input.rank() < 1 ? 0 : call.input.dim(0), ") must be the same as the group size (",
                             size, ")");
    }
    const int64_t row = call.input.num_elements() / size;
    const int own = run_->rank();
    const auto place = [&](int rank) { return run_->group().ChosenRank(rank) * row; };
    CopyToElements(ElementBytes(call.input, own * row, row), call.output, place(own));
    open_.store(2 * (size - 1) + 1);
    for (int other = 0; other < size; ++other) {
      if (other == own) continue;
      run_->Send(other, Key(own, other), ElementBytes(call.input, other * row, row),
                 [self = shared_from_this()] { self->Arrive(); });
      run_->Receive(other, Key(other, own), static_cast<size_t>(row) * SizeOf(call.dtype),
                    [self = shared_from_this(), at = place(other)](const net::Bytes& bytes) {
                      self->run_->BeforeWork(bytes.size());
                      CopyToElements(bytes, self->run_->call().output, at);
                      self->Arrive();
                    });
    }
    Arrive();
    return absl::OkStatus();
  }

 private:
  // TensorFlow writes the two ranks without a separator.
  std::string Key(int from, int to) const { return absl::StrCat(run_->buffer_prefix(), from, to); }
  void Arrive() {
    if (open_.fetch_sub(1, std::memory_order_acq_rel) == 1) run_->Finish(absl::OkStatus());
  }

  const std::shared_ptr<CollectiveRun> run_;
  std::atomic<int> open_{0};
};

}  // namespace

Status StartBroadcast(std::shared_ptr<CollectiveRun> run) {
  return std::make_shared<TreeExchange>(std::move(run))->Start();
}

Status StartAllToAll(std::shared_ptr<CollectiveRun> run) {
  return std::make_shared<AllToAllExchange>(std::move(run))->Start();
}

}  // namespace millrace
