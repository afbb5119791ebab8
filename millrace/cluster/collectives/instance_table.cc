#include "millrace/cluster/collectives/instance_table.h"

#include <algorithm>

namespace millrace {

Status InstanceTable::Compare(const Instance& instance, const InstanceRequest& request) {
  if (instance.kind != request.kind || instance.dtype != request.dtype) {
    return Internal("Collective instance ", request.instance_key, " expected type ", CollectiveKindName(instance.kind),
                    " and data_type ", DTypeName(instance.dtype), " but got type ", CollectiveKindName(request.kind),
                    " and data_type ", DTypeName(request.dtype), " from device ", request.device);
  }
  if (instance.shape != request.shape) {
    return InvalidArgument("Shape mismatch in the collective instance ", request.instance_key, ". Op at device ",
                           request.device, " expected shape ", request.shape.ToString(),
                           " but another member in the group expected shape ", instance.shape.ToString(),
                           ": the inputs of its members have different shapes");
  }
  return absl::OkStatus();
}

InstanceTable::Instance& InstanceTable::FindOrAdd(const InstanceRequest& request) {
  std::unique_ptr<Instance>& instance = instances_[KeyOf(request)];
  if (instance != nullptr) return *instance;
  instance = std::make_unique<Instance>(Instance{.kind = request.kind, .dtype = request.dtype, .shape = request.shape});
  if (request.kind == CollectiveKind::kBroadcast) instance->asked.resize(static_cast<size_t>(group_->size()));
  order_.push_back(KeyOf(request));
  Instance& added = *instance;
  // One that members wait for is never forgotten: it goes to the end of the line.
  for (size_t tries = order_.size(); order_.size() > kMaxInstances && tries > 0; --tries) {
    const Key oldest = order_.front();
    order_.pop_front();
    const auto it = instances_.find(oldest);
    if (it == instances_.end()) continue;
    if (it->second.get() == &added || !it->second->waiting.empty()) {
      order_.push_back(oldest);
    } else {
      instances_.erase(it);
    }
  }
  return added;
}

Status InstanceTable::Ask(const InstanceRequest& request, Instance* instance) {
  const int rank = group_->RankOf(request.device);
  if (rank < 0) return InvalidArgument("device ", request.device, " is not a member of group ", group_->key());
  if (!instance->asked[rank]) {
    instance->asked[rank] = true;
    ++instance->count;
    if (request.is_source && instance->source_rank >= 0) {
      return Internal("Instance ", request.instance_key, " already has source ",
                      group_->member(instance->source_rank).device.name(), ", received second claim from ",
                      request.device);
    }
    if (request.is_source) instance->source_rank = rank;
  }
  if (instance->count == group_->size() && instance->source_rank < 0) {
    return Internal("Instance ", request.instance_key, " found no source for broadcast.  This could mean that there ",
                    "were group_size=", group_->size(), " BcastRecvs but no BcastSend.");
  }
  return absl::OkStatus();
}

uint64_t InstanceTable::Resolve(const InstanceRequest& request, Done done) {
  StatusOr<int> result;
  std::unique_ptr<Instance> failed;
  std::vector<std::pair<uint64_t, Done>> ready;
  {
    MutexLock lock(&mu_);
    Instance& instance = FindOrAdd(request);
    const Status same = Compare(instance, request);
    const Status asked = !same.ok() || instance.asked.empty() ? absl::OkStatus() : Ask(request, &instance);
    if (!same.ok()) {
      result = same;
    } else if (!asked.ok()) {
      // It concerns everybody, and the next attempt starts afresh.
      result = asked;
      ready = std::move(instance.waiting);
      failed = std::move(instances_[KeyOf(request)]);
      instances_.erase(KeyOf(request));
    } else if (!instance.asked.empty() && instance.count < group_->size()) {
      instance.waiting.emplace_back(next_waiter_, std::move(done));
      return next_waiter_++;
    } else {
      result = instance.source_rank;
      ready.swap(instance.waiting);
    }
  }
  done(result);
  for (auto& [id, waiting] : ready) waiting(result);
  return 0;
}

void InstanceTable::Leave(const InstanceRequest& request, uint64_t waiter, const Status& why) {
  Done done;
  {
    MutexLock lock(&mu_);
    const auto it = instances_.find(KeyOf(request));
    if (it == instances_.end()) return;
    auto& waiting = it->second->waiting;
    const auto at =
        std::find_if(waiting.begin(), waiting.end(), [&](const auto& entry) { return entry.first == waiter; });
    if (at == waiting.end()) return;
    done = std::move(at->second);
    waiting.erase(at);
  }
  done(why);
}

void InstanceTable::End(const Status& why) {
  std::vector<std::pair<uint64_t, Done>> ended;
  {
    MutexLock lock(&mu_);
    for (auto& [key, instance] : instances_) {
      for (auto& waiter : std::exchange(instance->waiting, {})) ended.push_back(std::move(waiter));
    }
  }
  // In a fixed order, so that simulations are deterministic.
  std::sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [id, done] : ended) done(why);
}

bool InstanceTable::Find(const InstanceRequest& request, StatusOr<int>* result) const {
  MutexLock lock(&mu_);
  const auto it = instances_.find(KeyOf(request));
  if (it == instances_.end()) return false;
  const Status same = Compare(*it->second, request);
  if (same.ok()) {
    *result = it->second->source_rank;
  } else {
    *result = same;
  }
  return true;
}

void InstanceTable::Learn(const InstanceRequest& request, int source_rank) {
  MutexLock lock(&mu_);
  Instance& instance = FindOrAdd(request);
  instance.source_rank = source_rank;
  instance.asked.assign(instance.asked.size(), true);
  instance.count = group_->size();
}

std::string InstanceTable::Progress(const InstanceRequest& request) const {
  MutexLock lock(&mu_);
  const auto it = instances_.find(KeyOf(request));
  const int count = it == instances_.end() ? 0 : it->second->count;
  std::string missing;
  for (int rank = 0; it != instances_.end() && rank < static_cast<int>(it->second->asked.size()); ++rank) {
    if (!it->second->asked[rank] && missing.empty()) missing = group_->member(rank).device.name();
  }
  return absl::StrCat(count, " of ", group_->size(), " devices", missing.empty() ? "" : ", not ", missing);
}

}  // namespace millrace
