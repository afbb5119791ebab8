#include "millrace/ops/dataset/iterator_resource.h"

#include <utility>

#include "millrace/base/exception_status.h"

namespace millrace {

DatasetWalk::Answer DatasetWalk::Pull() {
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
    if (!has_left_over_ && !stopped_ && !iterator_->Ready()) {
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
      }
    }
    if (!have_answer) {
      if (!request->Wanted()) continue;
      answer = Pull();
    }
    if (!request->Take(answer)) {
      MutexLock lock(&mu_);
      left_over_ = std::move(answer);
      has_left_over_ = !stopped_;
    }
  }
}

void DatasetWalk::Stop() {
  for (const std::shared_ptr<PipelineContext>& context : contexts_) {
    context->cancellation.StartCancel(absl::CancelledError("the iterator was initialised anew or deleted"));
  }
  std::unique_ptr<ThreadPool> thread;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    thread = std::move(thread_);
  }
  // Joins the thread after pending requests have failed.
  thread.reset();
}

IteratorResource::~IteratorResource() {
  MutexLock lock(&mu_);
  if (walk_ != nullptr) walk_->Stop();
}

Status IteratorResource::Start(const DatasetValue& dataset) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> iterator, dataset.dataset.MakeIterator());
  auto walk = std::make_shared<DatasetWalk>(std::move(iterator), dataset.contexts);
  {
    MutexLock lock(&mu_);
    walk_.swap(walk);
  }
  if (walk != nullptr) walk->Stop();
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
