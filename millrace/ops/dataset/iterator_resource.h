// The walk through a dataset behind an iterator handle.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/ops/dataset/dataset_value.h"
#include "millrace/tensor/resource_handle.h"

namespace millrace {

// One walk. Requests are answered in the order in which they come. Thread-safe.
class DatasetWalk : public std::enable_shared_from_this<DatasetWalk> {
 public:
  // Null at the end of the dataset.
  using Answer = StatusOr<std::unique_ptr<std::vector<Tensor>>>;
  // Somebody who waits for an element. Taking is the one moment that decides between the answer and giving up:
  // it is called once with an answer, and gives that back unharmed when nobody wants it any more.
  struct Request {
    virtual ~Request() = default;
    virtual bool Wanted() const = 0;
    virtual bool Take(Answer& answer) = 0;
  };

  DatasetWalk(std::unique_ptr<DatasetIterator> iterator, PipelineContexts contexts)
      : iterator_(std::move(iterator)), contexts_(std::move(contexts)) {}
  // Gives up: functions under way are cancelled, and requests that still wait are told.
  void Stop();

  // Answers at once, on this thread, when the element can be had without waiting; otherwise on a thread of
  // the walk's own.
  void Next(std::shared_ptr<Request> request);

 private:
  void Serve();
  Answer Pull();

  const std::unique_ptr<DatasetIterator> iterator_;  // of who is serving
  const PipelineContexts contexts_;
  Answer left_over_ ABSL_GUARDED_BY(mu_) = std::unique_ptr<std::vector<Tensor>>();
  bool has_left_over_ ABSL_GUARDED_BY(mu_) = false;

  Mutex mu_;
  std::deque<std::shared_ptr<Request>> requests_ ABSL_GUARDED_BY(mu_);
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<ThreadPool> thread_ ABSL_GUARDED_BY(mu_);
};

// What an iterator handle names. Thread-safe.
class IteratorResource : public Resource {
 public:
  IteratorResource(std::string name, std::vector<DType> types, std::vector<PartialShape> shapes)
      : name_(std::move(name)), types_(std::move(types)), shapes_(std::move(shapes)) {}
  ~IteratorResource() override;

  const std::string& name() const { return name_; }
  const std::vector<DType>& types() const { return types_; }
  // Starts from the beginning of `dataset`; a walk before is given up.
  Status Start(const DatasetValue& dataset);
  bool started() const;
  // FAILED_PRECONDITION before Start.
  StatusOr<std::shared_ptr<DatasetWalk>> walk() const;
  // INVALID_ARGUMENT when an element is not of the iterator's types and shapes.
  Status Check(const std::vector<Tensor>& element) const;
  std::string DebugString() const override { return absl::StrCat("Iterator ", name_); }

 private:
  const std::string name_;
  const std::vector<DType> types_;
  const std::vector<PartialShape> shapes_;
  mutable Mutex mu_;
  std::shared_ptr<DatasetWalk> walk_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
