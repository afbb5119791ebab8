#include "millrace/strategy/worker_group.h"

#include <atomic>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "millrace/base/log.h"
#include "millrace/collective/blocking.h"
#include "millrace/net/address.h"

namespace millrace {

using collective::CollectiveGroup;
using collective::RankAddress;

struct WorkerGroup::State {
  // Remembers that an operation of the group failed.
  Status Ended(Status status) {
    if (!status.ok()) failed = true;
    return status;
  }
  collective::OperationOptions Next(absl::string_view what) {
    return {.key = absl::StrCat(what, " ", operations++), .timeout = timeout};
  }

  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  absl::Duration timeout = absl::InfiniteDuration();
  std::atomic<uint64_t> operations{0};
  std::atomic<bool> failed{false};
  // Null in a group of one. Later members use earlier ones.
  std::unique_ptr<Server> server;
  std::unique_ptr<CollectiveGroup> group;
};

namespace {

// The tasks that train, in the order of TaskConfig::worker_index.
StatusOr<std::vector<RankAddress>> Trainers(const ClusterSpec& cluster) {
  std::vector<RankAddress> ranks;
  for (const char* job : {"chief", "master", "worker"}) {
    for (const TaskId& task : cluster.tasks()) {
      if (task.job != job) continue;
      MR_ASSIGN_OR_RETURN(std::string address, cluster.Address(task));
      ranks.push_back({std::move(address), task.name()});
    }
  }
  return ranks;
}

// Memory of the tensor that nobody else reads.
collective::Elements Own(Tensor* tensor) {
  if (!tensor->RefCountIsOne()) *tensor = tensor->Clone();
  return {tensor->raw_data(), tensor->num_elements(), tensor->dtype(), tensor->buffer()};
}

Status CheckPlain(const Tensor& tensor) {
  if (tensor.IsInitialized() && IsPlain(tensor.dtype())) return absl::OkStatus();
  return InvalidArgument("collective operations take numbers, not ", tensor.DebugString());
}

}  // namespace

WorkerGroup::WorkerGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}

WorkerGroup::~WorkerGroup() {
  // Others that wait for this worker learn the error itself, rather than that it is gone.
  if (state_->failed) collective::Leave(*state_->group).IgnoreError();
}

StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::Start(const TaskConfig& config, WorkerGroupOptions options) {
  auto state = std::make_unique<State>();
  state->timeout = options.timeout;
  if (config.cluster.tasks().empty()) return std::unique_ptr<WorkerGroup>(new WorkerGroup(std::move(state)));
  MR_ASSIGN_OR_RETURN(std::vector<RankAddress> ranks, Trainers(config.cluster));
  int own = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].task == config.task.name()) own = static_cast<int>(i);
  }
  if (own < 0) {
    return InvalidArgument(config.task.name(), " is not one of the workers of this job: a group has the tasks of the ",
                           "jobs chief, master and worker");
  }
  state->rank = own;
  state->size = static_cast<int>(ranks.size());
  state->local_size = 0;
  MR_ASSIGN_OR_RETURN(const net::HostPort here, net::ParseHostPort(ranks[own].address));
  for (int i = 0; i < state->size; ++i) {
    MR_ASSIGN_OR_RETURN(const net::HostPort there, net::ParseHostPort(ranks[i].address));
    if (there.host != here.host) continue;
    if (i == own) state->local_rank = state->local_size;
    ++state->local_size;
  }
  MR_ASSIGN_OR_RETURN(state->server, Server::Start(config.cluster, config.task.job, config.task.index, options.server));
  MR_ASSIGN_OR_RETURN(state->group,
                      CollectiveGroup::Make(state->server->collectives(),
                                            {.key = options.key,
                                             .rank = own,
                                             .ranks = std::move(ranks),
                                             .transport = state->server->transport(),
                                             .waits = state->server->waits(),
                                             .announce = [](const std::string& line) { MR_LOG(Info, line); },
                                             .join_timeout = options.join_timeout}));
  return std::unique_ptr<WorkerGroup>(new WorkerGroup(std::move(state)));
}

StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::FromEnvironment(WorkerGroupOptions options) {
  MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> config, TaskConfig::FromEnvironment());
  return Start(config.value_or(TaskConfig()), std::move(options));
}

int WorkerGroup::rank() const { return state_->rank; }
int WorkerGroup::size() const { return state_->size; }
int WorkerGroup::local_rank() const { return state_->local_rank; }
int WorkerGroup::local_size() const { return state_->local_size; }
Server* WorkerGroup::server() const { return state_->server.get(); }
CollectiveGroup* WorkerGroup::group() const { return state_->group.get(); }

Status WorkerGroup::AllReduce(Tensor* tensor, collective::Reduction reduction) {
  MR_RETURN_IF_ERROR(CheckPlain(*tensor));
  MR_RETURN_IF_ERROR(collective::CheckReducible(tensor->dtype(), reduction));
  if (state_->group == nullptr) return absl::OkStatus();
  return state_->Ended(collective::AllReduce(*state_->group, Own(tensor), reduction, state_->Next("AllReduce")));
}

StatusOr<Tensor> WorkerGroup::AllGather(const Tensor& tensor) {
  MR_RETURN_IF_ERROR(CheckPlain(tensor));
  if (tensor.rank() == 0) return InvalidArgument("AllGather joins along the first dimension, and a scalar has none");
  if (state_->group == nullptr) return tensor;
  // First the shapes: all ranks see the same ones, and judge alike.
  const int dims = tensor.rank();
  Tensor shapes(DType::kInt64, {state_->size, dims});
  for (int d = 0; d < dims; ++d) shapes.data<int64_t>()[state_->rank * dims + d] = tensor.dim(d);
  MR_RETURN_IF_ERROR(
      state_->Ended(collective::AllGather(*state_->group, Own(&shapes), {}, state_->Next("AllGather of shapes"))));
  std::vector<int64_t> counts;
  int64_t rows = 0;
  for (int rank = 0; rank < state_->size; ++rank) {
    const int64_t* const shape = shapes.data<int64_t>() + rank * dims;
    int64_t count = shape[0];
    for (int d = 1; d < dims; ++d) {
      if (shape[d] != shapes.data<int64_t>()[d]) {
        return InvalidArgument("AllGather: dimension ", d, " of the tensor is ", shapes.data<int64_t>()[d],
                               " on rank 0 and ", shape[d], " on rank ", rank);
      }
      count *= shape[d];
    }
    counts.push_back(count);
    rows += shape[0];
  }
  Shape joined = tensor.shape();
  joined.set_dim(0, rows);
  MR_ASSIGN_OR_RETURN(Tensor all, Tensor::Make(tensor.dtype(), joined));
  size_t before = 0;
  for (int rank = 0; rank < state_->rank; ++rank) before += static_cast<size_t>(counts[rank]);
  if (tensor.TotalBytes() > 0) {
    std::memcpy(static_cast<char*>(all.raw_data()) + before * SizeOf(tensor.dtype()), tensor.raw_data(),
                tensor.TotalBytes());
  }
  MR_RETURN_IF_ERROR(
      state_->Ended(collective::AllGather(*state_->group, Own(&all), std::move(counts), state_->Next("AllGather"))));
  return all;
}

Status WorkerGroup::Broadcast(Tensor* tensor, int root) {
  MR_RETURN_IF_ERROR(CheckPlain(*tensor));
  if (root < 0 || root >= state_->size) {
    return InvalidArgument("the root of a broadcast is ", root, "; there are ", state_->size, " workers");
  }
  if (state_->group == nullptr) return absl::OkStatus();
  return state_->Ended(collective::Broadcast(*state_->group, Own(tensor), root, state_->Next("Broadcast")));
}

Status WorkerGroup::Barrier() {
  if (state_->group == nullptr) return absl::OkStatus();
  return state_->Ended(collective::Barrier(*state_->group, state_->Next("Barrier")));
}

Status WorkerGroup::Leave() { return state_->group == nullptr ? absl::OkStatus() : collective::Leave(*state_->group); }

}  // namespace millrace
