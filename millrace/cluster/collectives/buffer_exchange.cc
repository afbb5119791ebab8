#include "millrace/cluster/collectives/buffer_exchange.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace millrace {
namespace {

Status OtherSize(const BufferExchange::Request& request, size_t offered) {
  return InvalidArgument("Shape mismatch: device ", request.receiver, " expects ", request.size, " bytes under ",
                         request.key, " in step ", request.step_id, ", but the buffer has ", offered,
                         ": the members of the group have tensors of different shapes");
}

bool Fits(const BufferExchange::Request& request, const net::Bytes& bytes) {
  return request.size >= 0 && static_cast<size_t>(request.size) == bytes.size();
}

// Gives the buffer to the receiver, and tells the sender what became of it.
void Deliver(BufferExchange::Request& request, net::Bytes bytes, BufferExchange::Got& got,
             BufferExchange::Taken& taken) {
  const Status status = Fits(request, bytes) ? absl::OkStatus() : OtherSize(request, bytes.size());
  if (status.ok()) {
    got(std::move(bytes));
  } else {
    got(status);
  }
  taken(status);
}

}  // namespace

void BufferExchange::End(Parked parked, const Status& why) {
  if (parked.taken != nullptr) parked.taken(why);
  if (parked.got != nullptr) parked.got(why);
}

Status BufferExchange::Failed(int64_t step_id) const {
  if (!down_.ok()) return down_;
  const auto it = failed_.find(step_id);
  return it == failed_.end() ? absl::OkStatus() : it->second;
}

void BufferExchange::Offer(int64_t step_id, const std::string& key, net::Bytes bytes, Taken taken) {
  Parked waiting;
  Status status;
  {
    MutexLock lock(&mu_);
    status = Failed(step_id);
    if (status.ok()) {
      auto& step = steps_[step_id];
      const auto [it, is_new] = step.try_emplace(key);
      if (is_new) {
        it->second.bytes = std::move(bytes);
        it->second.taken = std::move(taken);
        it->second.since = clock_->Now();
        return;
      }
      if (it->second.taken != nullptr) {
        status = Internal("a buffer was offered twice under ", key, " in step ", step_id);
      } else {
        waiting = std::move(it->second);
        --requests_;
        step.erase(it);
        if (step.empty()) steps_.erase(step_id);
      }
    }
  }
  if (!status.ok()) return taken(status);
  if (waiting.request.scheduler == nullptr) return Deliver(waiting.request, std::move(bytes), waiting.got, taken);
  Scheduler* const scheduler = waiting.request.scheduler;
  scheduler->Schedule([waiting = std::move(waiting), bytes = std::move(bytes), taken = std::move(taken)]() mutable {
    Deliver(waiting.request, std::move(bytes), waiting.got, taken);
  });
}

uint64_t BufferExchange::Ask(Request request, Got got) {
  Parked offer;
  Status status;
  {
    MutexLock lock(&mu_);
    status = Failed(request.step_id);
    if (status.ok()) {
      auto& step = steps_[request.step_id];
      const auto it = step.find(request.key);
      if (it == step.end() && requests_ >= kMaxRequests) {
        status = ResourceExhausted(requests_, " requests wait for buffers of collective ops already");
        if (step.empty()) steps_.erase(request.step_id);
      } else if (it == step.end()) {
        ++requests_;
        Parked& parked = step[request.key];
        parked.id = next_id_++;
        parked.got = std::move(got);
        parked.since = clock_->Now();
        parked.request = std::move(request);
        return parked.id;
      } else if (it->second.got != nullptr) {
        status =
            Internal("a second receiver, ", request.receiver, ", asks for ", request.key, " in step ", request.step_id);
      } else {
        offer = std::move(it->second);
        step.erase(it);
        if (step.empty()) steps_.erase(request.step_id);
      }
    }
  }
  if (!status.ok()) {
    got(status);
    return 0;
  }
  Deliver(request, std::move(offer.bytes), got, offer.taken);
  return 0;
}

void BufferExchange::Withdraw(int64_t step_id, const std::string& key, uint64_t id, const Status& why) {
  Parked request;
  {
    MutexLock lock(&mu_);
    const auto step = steps_.find(step_id);
    if (step == steps_.end()) return;
    const auto it = step->second.find(key);
    if (it == step->second.end() || it->second.id != id || it->second.got == nullptr) return;
    request = std::move(it->second);
    --requests_;
    step->second.erase(it);
    if (step->second.empty()) steps_.erase(step);
  }
  End(std::move(request), why);
}

void BufferExchange::NoteFailed(int64_t step_id, const Status& why) {
  if (!failed_.try_emplace(step_id, why).second) return;
  failed_order_.push_back(step_id);
  if (failed_order_.size() <= kMaxFailedSteps) return;
  failed_.erase(failed_order_.front());
  failed_order_.pop_front();
}

void BufferExchange::FailStep(int64_t step_id, const Status& why) {
  absl::flat_hash_map<std::string, Parked> parked;
  {
    MutexLock lock(&mu_);
    NoteFailed(step_id, why);
    const auto it = steps_.find(step_id);
    if (it != steps_.end()) {
      parked = std::move(it->second);
      steps_.erase(it);
    }
    for (const auto& [key, entry] : parked) requests_ -= entry.got != nullptr ? 1 : 0;
  }
  // In a fixed order, so that simulations are deterministic.
  std::vector<std::string> keys;
  for (const auto& [key, entry] : parked) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  for (const std::string& key : keys) End(std::move(parked[key]), why);
}

void BufferExchange::Shutdown(const Status& why) {
  std::vector<int64_t> steps;
  {
    MutexLock lock(&mu_);
    down_ = why;
    for (const auto& [step_id, parked] : steps_) steps.push_back(step_id);
  }
  std::sort(steps.begin(), steps.end());
  for (const int64_t step_id : steps) FailStep(step_id, why);
}

void BufferExchange::ListWaits(std::vector<Wait>* waits) const {
  MutexLock lock(&mu_);
  for (const auto& [step_id, parked] : steps_) {
    for (const auto& [key, entry] : parked) {
      // Requests of this task's own ops have a scheduler.
      if (entry.got == nullptr || entry.request.scheduler != nullptr || absl::StrContains(key, kWatchKey)) continue;
      waits->push_back({.node = "collective",
                        .what = absl::StrCat("buffer ", key, ", which ", entry.request.receiver,
                                             " asks for and no op here has offered yet"),
                        .step_id = step_id,
                        .since = entry.since});
    }
  }
}

size_t BufferExchange::size() const {
  MutexLock lock(&mu_);
  size_t size = 0;
  for (const auto& [step_id, parked] : steps_) size += parked.size();
  return size;
}

}  // namespace millrace
