#include "millrace/ops/dataset/dataset_value.h"

namespace millrace {

StatusOr<const DatasetValue*> DatasetIn(const Tensor& tensor, absl::string_view what) {
  if (tensor.dtype() != DType::kVariant || tensor.num_elements() != 1) {
    return InvalidArgument(what, " must be a dataset, not ", tensor.DebugString());
  }
  const DatasetValue* value = tensor.scalar<Variant>().Get<DatasetValue>();
  if (value == nullptr) {
    return InvalidArgument(what, " must be a dataset, not a variant that is ", tensor.scalar<Variant>().DebugString());
  }
  return value;
}

Dataset FromPass(Dataset input, std::function<Generator(std::shared_ptr<DatasetIterator>)> start) {
  return Dataset::FromGenerator([input = std::move(input), start = std::move(start)](uint64_t epoch) -> Generator {
           StatusOr<std::unique_ptr<DatasetIterator>> iterator = input.MakeIterator(epoch);
           if (!iterator.ok()) {
             return [status = iterator.status()](std::vector<Tensor>*) -> StatusOr<bool> { return status; };
           }
           return start(*std::move(iterator));
         })
      // The input, or a function, may wait for another thread.
      .Map([](std::vector<Tensor>*) { return absl::OkStatus(); }, /*waits=*/true);
}

Status DatasetKernel::Compute(KernelContext& ctx) {
  PipelineContexts contexts;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    if (ctx.input(i).dtype() != DType::kVariant || ctx.input(i).num_elements() != 1) continue;
    const DatasetValue* input = ctx.input(i).scalar<Variant>().Get<DatasetValue>();
    if (input == nullptr) continue;
    contexts.insert(contexts.end(), input->contexts.begin(), input->contexts.end());
  }
  MR_ASSIGN_OR_RETURN(Dataset dataset, Make(ctx, &contexts));
  Tensor out(DType::kVariant, Shape());
  out.scalar<Variant>() = Variant(MakeRef<DatasetValue>(std::move(dataset), std::move(contexts)));
  ctx.SetOutput(0, std::move(out));
  return absl::OkStatus();
}

StatusOr<Dataset> DatasetKernel::Input(KernelContext& ctx, int i) {
  MR_ASSIGN_OR_RETURN(const DatasetValue* value, DatasetIn(ctx.input(i), "the input"));
  return value->dataset;
}

StatusOr<int64_t> DatasetKernel::Count(KernelContext& ctx, int i, absl::string_view name, int64_t least) {
  MR_ASSIGN_OR_RETURN(const int64_t count, Scalar<int64_t>(ctx, i, name));
  if (count < least) return InvalidArgument(name, " must be at least ", least, ", not ", count);
  return count;
}

}  // namespace millrace
