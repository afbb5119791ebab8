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

std::shared_ptr<const PipelineContext::Iteration> PipelineContext::iteration() const {
  MutexLock lock(&mu_);
  return iteration_;
}

void PipelineContext::Cancel(const Status& why) {
  std::shared_ptr<Iteration> iteration;
  {
    MutexLock lock(&mu_);
    iteration = iteration_;
  }
  iteration->cancellation.StartCancel(why);
}

void PipelineContext::Renew() {
  MutexLock lock(&mu_);
  iteration_ = std::make_shared<Iteration>(iteration_->step);
}

void PipelineParts::Add(const PipelineParts& other) {
  contexts.insert(contexts.end(), other.contexts.begin(), other.contexts.end());
  seeds.insert(seeds.end(), other.seeds.begin(), other.seeds.end());
}

void PipelineParts::Cancel(const Status& why) const {
  for (const std::shared_ptr<PipelineContext>& context : contexts) context->Cancel(why);
}

void PipelineParts::Renew() const {
  for (const std::shared_ptr<PipelineContext>& context : contexts) context->Renew();
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
  PipelineParts parts;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    if (ctx.input(i).dtype() != DType::kVariant || ctx.input(i).num_elements() != 1) continue;
    const DatasetValue* input = ctx.input(i).scalar<Variant>().Get<DatasetValue>();
    if (input != nullptr) parts.Add(input->parts);
  }
  MR_ASSIGN_OR_RETURN(Dataset dataset, Make(ctx, &parts));
  Tensor out(DType::kVariant, Shape());
  out.scalar<Variant>() = Variant(MakeRef<DatasetValue>(std::move(dataset), std::move(parts)));
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
