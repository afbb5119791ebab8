#include "millrace/strategy/horovod/lane_carrier.h"

#include <utility>

#include "millrace/runtime/wait_registry.h"

namespace millrace::hvd {
namespace {

class LaneCarrier final : public Carrier {
 public:
  explicit LaneCarrier(std::unique_ptr<WorkerGroup> workers) : workers_(std::move(workers)) {}

  int rank() const override { return workers_->rank(); }
  int size() const override { return workers_->size(); }
  int local_rank() const override { return workers_->local_rank(); }
  int local_size() const override { return workers_->local_size(); }
  Status AllReduce(Tensor* tensor, collective::Reduction reduction) override {
    return workers_->AllReduce(tensor, reduction);
  }
  Status Broadcast(Tensor* tensor, int root) override { return workers_->Broadcast(tensor, root); }
  StatusOr<Tensor> AllGather(const Tensor& tensor) override { return workers_->AllGather(tensor); }
  Status Leave() override { return workers_->Leave(); }

  std::string Awaited() const override {
    if (workers_->server() == nullptr) return "";
    for (const Wait& wait : workers_->server()->waits()->List()) {
      if (wait.kind == Wait::Kind::kPeer) return wait.what;
    }
    return "";
  }

 private:
  const std::unique_ptr<WorkerGroup> workers_;
};

}  // namespace

std::unique_ptr<Carrier> NewLaneCarrier(std::unique_ptr<WorkerGroup> workers) {
  return std::make_unique<LaneCarrier>(std::move(workers));
}

}  // namespace millrace::hvd
