// PaddedBatch: stacks elements of different shapes, each padded to a common shape.
#include <algorithm>
#include <utility>

#include "millrace/data/stage.h"
#include "millrace/tensor/copy_elements.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace data_internal {
namespace {

void Fill(Tensor* t, const Tensor& value) {
  DispatchMove(t->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::fill_n(t->raw<T>(), t->num_elements(), *value.raw<T>());
  });
}

// Copies `from` into the leading corner of slice `at` of a batch of shape [n] + dims.
void CopyCorner(const Tensor& from, Tensor* batch, int64_t at) {
  const int rank = from.rank();
  if (from.num_elements() == 0) return;
  const int64_t run = rank == 0 ? 1 : from.dim(rank - 1);
  const int64_t runs = from.num_elements() / run;
  std::vector<int64_t> index(rank, 0);
  for (int64_t r = 0; r < runs; ++r) {
    int64_t place = at;
    for (int d = 0; d < rank; ++d) place = place * batch->dim(d + 1) + index[d];
    CopyElements(from.dtype(), from.raw_data(), r * run, batch->raw_data(), place, run);
    for (int d = rank - 2; d >= 0 && ++index[d] == from.dim(d); --d) index[d] = 0;
  }
}

class PaddedBatchStage : public Stage {
 public:
  PaddedBatchStage(SourcePtr input, std::shared_ptr<const PaddedBatchOptions> options, uint64_t epoch)
      : input_(std::move(input)), options_(std::move(options)), stage_(input_->Start(epoch)) {}

  StatusOr<bool> Next(Element* element) override {
    std::vector<std::vector<Tensor>> elements;
    while (stage_ != nullptr && static_cast<int64_t>(elements.size()) < options_->size) {
      Element next;
      MR_ASSIGN_OR_RETURN(const bool more, stage_->Next(&next));
      if (!more) {
        stage_ = nullptr;
        break;
      }
      Materialize(input_->table(), &next);
      if (next.tensors.size() != options_->padded_shapes.size()) {
        return InvalidArgument("an element of ", next.tensors.size(), " components is to be padded to ",
                               options_->padded_shapes.size(), " shapes");
      }
      elements.push_back(std::move(next.tensors));
    }
    const int64_t got = static_cast<int64_t>(elements.size());
    if (got == 0 || (got < options_->size && options_->drop_remainder)) return false;
    *element = Element();
    for (size_t c = 0; c < options_->padded_shapes.size(); ++c) {
      MR_ASSIGN_OR_RETURN(Tensor batch, Pad(elements, c));
      element->tensors.push_back(std::move(batch));
    }
    return true;
  }

 private:
  StatusOr<Tensor> Pad(const std::vector<std::vector<Tensor>>& elements, size_t c) const {
    const PartialShape& wanted = options_->padded_shapes[c];
    const Tensor& value = options_->padding_values[c];
    const DType dtype = elements[0][c].dtype();
    if (value.dtype() != dtype || value.num_elements() != 1) {
      return InvalidArgument("component ", c, " is ", dtype, " but is to be padded with ", value.DebugString());
    }
    const int rank = elements[0][c].rank();
    std::vector<int64_t> dims(rank, 0);
    for (const std::vector<Tensor>& e : elements) {
      const Tensor& t = e[c];
      if (t.rank() != rank || t.dtype() != dtype || (wanted.known_rank() && wanted.rank() != rank)) {
        return InvalidArgument("component ", c, " of a padded batch has elements ", dtype,
                               elements[0][c].shape().ToString(), " and ", t.dtype(), t.shape().ToString(),
                               ", to be padded to ", wanted.ToString());
      }
      for (int d = 0; d < rank; ++d) dims[d] = std::max(dims[d], t.dim(d));
    }
    for (int d = 0; d < rank && wanted.known_rank(); ++d) {
      if (wanted.dim(d) < 0) continue;
      if (dims[d] > wanted.dim(d)) {
        return DataLoss("attempted to pad to a smaller size than the input element: component ", c, " has size ",
                        dims[d], " in dimension ", d, " and is to be padded to ", wanted.ToString());
      }
      dims[d] = wanted.dim(d);
    }
    Shape shape((absl::Span<const int64_t>(dims)));
    shape.InsertDim(0, static_cast<int64_t>(elements.size()));
    MR_ASSIGN_OR_RETURN(Tensor batch, Tensor::Make(dtype, std::move(shape)));
    Fill(&batch, value);
    for (size_t i = 0; i < elements.size(); ++i) CopyCorner(elements[i][c], &batch, static_cast<int64_t>(i));
    return batch;
  }

  const SourcePtr input_;
  const std::shared_ptr<const PaddedBatchOptions> options_;
  std::unique_ptr<Stage> stage_;
};

class PaddedBatchSource : public Source {
 public:
  PaddedBatchSource(SourcePtr input, PaddedBatchOptions options)
      : Source(*input, NewElements()),
        input_(std::move(input)),
        options_(std::make_shared<PaddedBatchOptions>(std::move(options))) {
    set_cardinality(BatchCount(cardinality(), options_->size, options_->drop_remainder));
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<PaddedBatchStage>(input_, options_, epoch);
  }

 private:
  const SourcePtr input_;
  const std::shared_ptr<const PaddedBatchOptions> options_;
};

}  // namespace

SourcePtr NewPaddedBatch(SourcePtr input, PaddedBatchOptions options) {
  return std::make_shared<PaddedBatchSource>(std::move(input), std::move(options));
}

}  // namespace data_internal
}  // namespace millrace
