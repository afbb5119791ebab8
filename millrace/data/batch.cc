// Batch: stacks several elements into one. Rows of in-memory tensors are copied once, directly into the batch.
#include <algorithm>
#include <utility>

#include "millrace/data/stage.h"
#include "millrace/tensor/copy_elements.h"

namespace millrace {
namespace data_internal {
namespace {

// Reuses the memory of batches that the consumer has released: page faults on fresh memory would cost more than the
// copy.
class BatchMemory {
 public:
  StatusOr<Tensor> Take(DType dtype, Shape shape) {
    if (!IsPlain(dtype)) return Tensor::Make(dtype, std::move(shape));
    for (Tensor& tensor : tensors_) {
      if (tensor.dtype() == dtype && tensor.shape() == shape && tensor.RefCountIsOne()) return tensor;
    }
    MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(dtype, std::move(shape)));
    // Above the limit the oldest is dropped: the consumer is keeping its batches.
    if (tensors_.size() < kMaxKept) {
      tensors_.push_back(tensor);
    } else {
      tensors_[next_++ % kMaxKept] = tensor;
    }
    return tensor;
  }

 private:
  static constexpr size_t kMaxKept = 16;
  std::vector<Tensor> tensors_;
  size_t next_ = 0;
};

Shape BatchShape(int64_t n, absl::Span<const int64_t> row) {
  Shape shape(row);
  shape.InsertDim(0, n);
  return shape;
}

// Copies one element to position `at` of the batch.
void CopyInto(Tensor* batch, int64_t at, const char* from, int64_t elements) {
  CopyElements(batch->dtype(), from, 0, batch->raw_data(), at * elements, elements);
}

Status CheckAlike(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) {
    return InvalidArgument("elements of ", a.size(), " and of ", b.size(), " components cannot be in one batch");
  }
  for (size_t c = 0; c < a.size(); ++c) {
    if (a[c].dtype() != b[c].dtype() || a[c].shape() != b[c].shape()) {
      return InvalidArgument("component ", c, " of the elements of one batch is ", a[c].dtype(),
                             a[c].shape().ToString(), " and ", b[c].dtype(), b[c].shape().ToString());
    }
    if (!a[c].IsInitialized()) return InvalidArgument("component ", c, " of an element is not initialized");
  }
  return absl::OkStatus();
}

Status StackInto(const std::vector<std::vector<Tensor>>& elements, BatchMemory* memory, std::vector<Tensor>* batch) {
  const std::vector<Tensor>& first = elements.front();
  const int64_t n = static_cast<int64_t>(elements.size());
  for (const std::vector<Tensor>& other : elements) MR_RETURN_IF_ERROR(CheckAlike(first, other));
  for (size_t c = 0; c < first.size(); ++c) {
    MR_ASSIGN_OR_RETURN(Tensor out, memory->Take(first[c].dtype(), BatchShape(n, first[c].shape().dims())));
    for (int64_t i = 0; i < n; ++i) {
      CopyInto(&out, i, elements[i][c].raw<const char>(), first[c].num_elements());
    }
    batch->push_back(std::move(out));
  }
  return absl::OkStatus();
}

class BatchStage : public Stage {
 public:
  BatchStage(SourcePtr source, std::unique_ptr<Stage> input, int64_t n, bool drop_remainder)
      : source_(std::move(source)), input_(std::move(input)), n_(n), drop_remainder_(drop_remainder) {}

  StatusOr<bool> Next(Element* element) override {
    if (input_ == nullptr) return false;
    rows_.clear();
    elements_.clear();
    Element next;
    while (static_cast<int64_t>(rows_.size() + elements_.size()) < n_) {
      MR_ASSIGN_OR_RETURN(const bool more, input_->Next(&next));
      if (!more) {
        input_ = nullptr;
        break;
      }
      if (next.row >= 0) {
        rows_.push_back(next.row);
      } else {
        elements_.push_back(std::move(next.tensors));
      }
    }
    const int64_t got = static_cast<int64_t>(rows_.size() + elements_.size());
    if (got == 0 || (got < n_ && drop_remainder_)) return false;
    element->row = -1;
    element->tensors.clear();
    MR_RETURN_IF_ERROR(rows_.empty() ? Stack(&element->tensors) : Gather(&element->tensors));
    return true;
  }

 private:
  Status Gather(std::vector<Tensor>* batch) {
    const int64_t n = static_cast<int64_t>(rows_.size());
    bool consecutive = true;
    for (int64_t i = 1; i < n && consecutive; ++i) consecutive = rows_[i] == rows_[0] + i;
    for (const Tensor& table : *source_->table()) {
      if (consecutive) {
        Tensor slice = table.Slice(rows_[0], rows_[0] + n);
        if (slice.IsAligned()) {
          batch->push_back(std::move(slice));
          continue;
        }
      }
      MR_ASSIGN_OR_RETURN(Tensor out, memory_.Take(table.dtype(), BatchShape(n, table.shape().dims().subspan(1))));
      const int64_t elements = table.shape().Product(1, table.rank());
      const size_t stride = static_cast<size_t>(elements) * SizeOf(table.dtype());
      for (int64_t i = 0; i < n; ++i) {
        CopyInto(&out, i, table.raw<const char>() + static_cast<size_t>(rows_[i]) * stride, elements);
      }
      batch->push_back(std::move(out));
    }
    return absl::OkStatus();
  }

  Status Stack(std::vector<Tensor>* batch) {
    MR_RETURN_IF_ERROR(StackInto(elements_, &memory_, batch));
    elements_.clear();
    return absl::OkStatus();
  }

  const SourcePtr source_;  // keeps the row table alive
  std::unique_ptr<Stage> input_;
  const int64_t n_;
  const bool drop_remainder_;
  BatchMemory memory_;
  std::vector<int64_t> rows_;
  std::vector<std::vector<Tensor>> elements_;
};

class BatchSource : public Source {
 public:
  BatchSource(SourcePtr input, int64_t n, bool drop_remainder)
      : Source(*input, NewElements()), input_(std::move(input)), n_(n), drop_remainder_(drop_remainder) {
    set_cardinality(BatchCount(cardinality(), n, drop_remainder));
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<BatchStage>(input_, input_->Start(epoch), n_, drop_remainder_);
  }

 private:
  const SourcePtr input_;
  const int64_t n_;
  const bool drop_remainder_;
};

}  // namespace

StatusOr<std::vector<Tensor>> StackElements(const std::vector<std::vector<Tensor>>& elements) {
  BatchMemory memory;
  std::vector<Tensor> stacked;
  MR_RETURN_IF_ERROR(StackInto(elements, &memory, &stacked));
  return stacked;
}

SourcePtr NewBatch(SourcePtr input, int64_t n, bool drop_remainder) {
  return std::make_shared<BatchSource>(std::move(input), n, drop_remainder);
}

}  // namespace data_internal
}  // namespace millrace
