#include "millrace/ops/dataset/iterator_resource.h"

#include <utility>

#include "millrace/base/exception_status.h"

namespace millrace {

Status DatasetWalk::Skip() {
  std::vector<Tensor> element;
  for (; to_skip_ > 0 && !stopped(); --to_skip_) {
    element.clear();
    MR_ASSIGN_OR_RETURN(const bool more, CatchExceptions([&] { return iterator_->Next(&element); }));
    if (!more) to_skip_ = 1;
  }
  return absl::OkStatus();
}

DatasetWalk::Answer DatasetWalk::Pull() {
  if (to_skip_ > 0) MR_RETURN_IF_ERROR(Skip());
  auto element = std::make_unique<std::vector<Tensor>>();
  MR_ASSIGN_OR_RETURN(const bool more, CatchExceptions([&] { return iterator_->Next(element.get()); }));
  if (!more) return std::unique_ptr<std::vector<Tensor>>();
  return element;
}

void DatasetWalk::Next(std::shared_ptr<Request> request) {
  {
    MutexLock lock(&mu_);
    requests_.push_back(std::move(request));
    if (serving_) return;
    serving_ = true;
    // The serving thread has exclusive access to the iterator.
    if (!has_left_over_ && !stopped_ && (to_skip_ > 0 || !iterator_->Ready())) {
      if (thread_ == nullptr) thread_ = std::make_unique<ThreadPool>("iterator", 1);
      thread_->Schedule([walk = shared_from_this()] { walk->Serve(); });
      return;
    }
  }
  // An answer may end the step, which may hold the last other reference to this object.
  const std::shared_ptr<DatasetWalk> self = shared_from_this();
  Serve();
}

void DatasetWalk::Serve() {
  for (;;) {
    std::shared_ptr<Request> request;
    Answer answer = absl::CancelledError("the iterator was initialised anew or deleted");
    bool have_answer = false;
    {
      MutexLock lock(&mu_);
      if (requests_.empty()) {
        serving_ = false;
        return;
      }
      request = std::move(requests_.front());
      requests_.pop_front();
      if (stopped_) {
        have_answer = true;
      } else if (has_left_over_) {
        answer = std::move(left_over_);
        has_left_over_ = false;
        have_answer = true;
      } else if (request->Wanted()) {
        pulling_ = true;
      } else {
        continue;
      }
    }
    if (!have_answer) {
      answer = Pull();
      MutexLock lock(&mu_);
      pulling_ = false;
      pulled_.SignalAll();
    }
    // Counted before the step that takes it ends, since a later step may save the position.
    const uint64_t elements = answer.ok() && *answer != nullptr ? 1 : 0;
    if (elements > 0) {
      MutexLock lock(&mu_);
      taken_ += elements;
    }
    if (!request->Take(answer)) {
      MutexLock lock(&mu_);
      taken_ -= elements;
      left_over_ = std::move(answer);
      has_left_over_ = !stopped_;
    }
  }
}

void DatasetWalk::Stop() {
  parts_.Cancel(absl::CancelledError("the iterator was initialised anew or deleted"));
  std::unique_ptr<ThreadPool> thread;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    thread = std::move(thread_);
  }
  // Joins the thread after pending requests have failed.
  thread.reset();
}

void DatasetWalk::Release() {
  std::unique_ptr<DatasetIterator> iterator;  // destroyed without the lock
  MutexLock lock(&mu_);
  while (pulling_) pulled_.Wait(&mu_);
  iterator = std::move(iterator_);
}

uint64_t DatasetWalk::position() const {
  MutexLock lock(&mu_);
  return taken_;
}

bool DatasetWalk::stopped() const {
  MutexLock lock(&mu_);
  return stopped_;
}

IteratorResource::~IteratorResource() {
  MutexLock lock(&mu_);
  if (walk_ != nullptr) walk_->Stop();
}

Status IteratorResource::Start(RefPtr<const DatasetValue> dataset) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> iterator, dataset->dataset.MakeIterator());
  auto walk = std::make_shared<DatasetWalk>(std::move(iterator), dataset->parts);
  {
    MutexLock lock(&mu_);
    walk_.swap(walk);
    std::swap(dataset_, dataset);
  }
  if (walk != nullptr) walk->Stop();
  return absl::OkStatus();
}

StatusOr<IteratorPosition> IteratorResource::Save() const {
  MutexLock lock(&mu_);
  if (walk_ == nullptr) {
    return FailedPrecondition("iterator '", name_, "' cannot be saved: it has not been initialized");
  }
  IteratorPosition position;
  position.taken = walk_->position();
  for (const std::shared_ptr<ChosenSeeds>& seeds : dataset_->parts.seeds) {
    position.seeds.emplace_back(seeds->seed.load(), seeds->seed2.load());
  }
  return position;
}

Status IteratorResource::Restore(const IteratorPosition& position) {
  MutexLock restoring(&restoring_);
  std::shared_ptr<DatasetWalk> walk;
  RefPtr<const DatasetValue> dataset;
  {
    MutexLock lock(&mu_);
    walk = walk_;
    dataset = dataset_;
  }
  if (walk == nullptr) {
    return FailedPrecondition("iterator '", name_, "' cannot be restored before it has been initialized");
  }
  const std::vector<std::shared_ptr<ChosenSeeds>>& seeds = dataset->parts.seeds;
  if (seeds.size() != position.seeds.size()) {
    return InvalidArgument("iterator '", name_, "' cannot be restored: the position is that of a pipeline with ",
                           position.seeds.size(), " ops that have random seeds, and this one has ", seeds.size());
  }
  // The former pass, whose threads may be within functions of the pipeline, is over before these can be called again.
  walk->Stop();
  walk->Release();
  dataset->parts.Renew();
  for (size_t i = 0; i < seeds.size(); ++i) {
    seeds[i]->seed = position.seeds[i].first;
    seeds[i]->seed2 = position.seeds[i].second;
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> iterator, dataset->dataset.MakeIterator());
  auto restored = std::make_shared<DatasetWalk>(std::move(iterator), dataset->parts, /*skip=*/position.taken);
  MutexLock lock(&mu_);
  if (walk_ != walk) {
    restored->Stop();
    return absl::AbortedError(absl::StrCat("iterator '", name_, "' was initialized while it was being restored"));
  }
  walk_ = std::move(restored);
  return absl::OkStatus();
}

bool IteratorResource::started() const {
  MutexLock lock(&mu_);
  return walk_ != nullptr;
}

StatusOr<std::shared_ptr<DatasetWalk>> IteratorResource::walk() const {
  MutexLock lock(&mu_);
  if (walk_ == nullptr) {
    return FailedPrecondition(
        "GetNext() failed because the iterator has not been initialized. Ensure that you have "
        "run the initializer operation for iterator '",
        name_, "' before getting the next element.");
  }
  return walk_;
}

Status IteratorResource::Check(const std::vector<Tensor>& element) const {
  if (types_.empty()) return absl::OkStatus();
  if (element.size() != types_.size()) {
    return InvalidArgument("an element has ", element.size(), " components; iterator '", name_, "' promises ",
                           types_.size());
  }
  for (size_t i = 0; i < element.size(); ++i) {
    if (element[i].dtype() != types_[i]) {
      return InvalidArgument("component ", i, " of an element is ", element[i].dtype(), "; iterator '", name_,
                             "' promises ", types_[i]);
    }
    if (i < shapes_.size() && !shapes_[i].IsCompatibleWith(element[i].shape())) {
      return InvalidArgument("component ", i, " of an element has the shape ", element[i].shape().ToString(),
                             "; iterator '", name_, "' promises ", shapes_[i].ToString());
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
