// The state of iterators.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/ops/dataset/dataset_value.h"
#include "millrace/tensor/resource_handle.h"

namespace millrace {

// One iteration over a dataset. Requests are served in FIFO order. Thread-safe.
class DatasetWalk : public std::enable_shared_from_this<DatasetWalk> {
 public:
  // Null at the end of the dataset.
  using Answer = StatusOr<std::unique_ptr<std::vector<Tensor>>>;
  // A pending request for an element. Take decides atomically between delivery and cancellation: it is called once with
  // an answer, and returns false with the answer intact if the request was cancelled.
  struct Request {
    virtual ~Request() = default;
    virtual bool Wanted() const = 0;
    virtual bool Take(Answer& answer) = 0;
  };

  // The first request drops `skip` elements before it takes its own.
  DatasetWalk(std::unique_ptr<DatasetIterator> iterator, PipelineParts parts, uint64_t skip = 0)
      : iterator_(std::move(iterator)), parts_(std::move(parts)), to_skip_(skip), taken_(skip) {}
  // Abandons the iteration: cancels running functions and fails pending requests.
  void Stop();
  // Ends the pass over the dataset, after Stop. Waits for the thread that is getting an element.
  void Release();

  // Answers immediately on this thread if the element is available without waiting, otherwise on a thread of its own.
  void Next(std::shared_ptr<Request> request);
  // How many elements of the dataset have been taken, or were to be skipped.
  uint64_t position() const;

 private:
  void Serve();
  Answer Pull();
  Status Skip();
  bool stopped() const;

  std::unique_ptr<DatasetIterator> iterator_;  // used only while serving_ is set, by the serving thread
  const PipelineParts parts_;
  uint64_t to_skip_;  // used like iterator_ after construction
  Answer left_over_ ABSL_GUARDED_BY(mu_) = std::unique_ptr<std::vector<Tensor>>();
  bool has_left_over_ ABSL_GUARDED_BY(mu_) = false;

  mutable Mutex mu_;
  uint64_t taken_ ABSL_GUARDED_BY(mu_);
  std::deque<std::shared_ptr<Request>> requests_ ABSL_GUARDED_BY(mu_);
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool pulling_ ABSL_GUARDED_BY(mu_) = false;
  CondVar pulled_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<ThreadPool> thread_ ABSL_GUARDED_BY(mu_);
};

// Where an iteration is: enough to go on from there, in this process or another one, over the same dataset.
struct IteratorPosition {
  uint64_t taken = 0;
  std::vector<std::pair<uint64_t, uint64_t>> seeds = {};  // of the dataset's PipelineParts
};

// The resource of an iterator handle. Thread-safe.
class IteratorResource : public Resource {
 public:
  IteratorResource(std::string name, std::vector<DType> types, std::vector<PartialShape> shapes)
      : name_(std::move(name)), types_(std::move(types)), shapes_(std::move(shapes)) {}
  ~IteratorResource() override;

  const std::string& name() const { return name_; }
  const std::vector<DType>& types() const { return types_; }
  // Starts at the beginning of `dataset`; an earlier iteration is abandoned.
  Status Start(RefPtr<const DatasetValue> dataset);
  bool started() const;
  // FAILED_PRECONDITION before Start.
  StatusOr<std::shared_ptr<DatasetWalk>> walk() const;
  // FAILED_PRECONDITION before Start.
  StatusOr<IteratorPosition> Save() const;
  // Goes on from a position of another iteration over the dataset of the last Start; the current one is abandoned. The
  // elements before the position are made again and dropped. FAILED_PRECONDITION before Start; INVALID_ARGUMENT if the
  // position is that of another pipeline.
  Status Restore(const IteratorPosition& position);
  // INVALID_ARGUMENT if an element does not match the iterator's types and shapes.
  Status Check(const std::vector<Tensor>& element) const;
  std::string DebugString() const override { return absl::StrCat("Iterator ", name_); }

 private:
  const std::string name_;
  const std::vector<DType> types_;
  const std::vector<PartialShape> shapes_;
  Mutex restoring_;  // locked before mu_
  mutable Mutex mu_;
  std::shared_ptr<DatasetWalk> walk_ ABSL_GUARDED_BY(mu_);
  RefPtr<const DatasetValue> dataset_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
