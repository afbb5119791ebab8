// SerializeIterator and DeserializeIterator: the position of an iterator as a value that checkpoints keep.
//
// A position is the number of elements taken and the seeds that were chosen at random. A restored iterator makes the
// elements before its position again and drops them: this takes time, but holds for every pipeline, and no buffer of a
// shuffle has to be stored.
#include <utility>

#include "millrace/ops/dataset/iterator_resource.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {
namespace {

constexpr char kTypeName[] = "millrace::IteratorPosition";
constexpr char kVersion[] = "1";

class IteratorPositionValue : public VariantValue {
 public:
  explicit IteratorPositionValue(IteratorPosition position) : position(std::move(position)) {}
  absl::string_view TypeName() const override { return kTypeName; }
  std::string DebugString() const override {
    return absl::StrCat("position of an iterator after ", position.taken, " elements");
  }
  // One vector: the number of elements, then pairs of seeds.
  Status Encode(std::string* metadata, std::vector<Tensor>* tensors) const override {
    *metadata = kVersion;
    Tensor numbers(DType::kUInt64, {static_cast<int64_t>(1 + 2 * position.seeds.size())});
    uint64_t* to = numbers.data<uint64_t>();
    *to++ = position.taken;
    for (const auto& [seed, seed2] : position.seeds) {
      *to++ = seed;
      *to++ = seed2;
    }
    tensors->push_back(std::move(numbers));
    return absl::OkStatus();
  }

  static StatusOr<RefPtr<VariantValue>> Decode(const std::string& metadata, const std::vector<Tensor>& tensors) {
    if (metadata != kVersion) {
      return InvalidArgument("the position of an iterator has version '", metadata, "'; this program reads version ",
                             kVersion);
    }
    if (tensors.size() != 1 || tensors[0].dtype() != DType::kUInt64 || tensors[0].num_elements() % 2 != 1) {
      return InvalidArgument("the position of an iterator is malformed");
    }
    const absl::Span<const uint64_t> numbers = tensors[0].flat<uint64_t>();
    IteratorPosition position;
    position.taken = numbers[0];
    for (size_t i = 1; i < numbers.size(); i += 2) position.seeds.emplace_back(numbers[i], numbers[i + 1]);
    return RefPtr<VariantValue>(MakeRef<IteratorPositionValue>(std::move(position)));
  }

  const IteratorPosition position;
};

const VariantDecoder decoder(kTypeName, IteratorPositionValue::Decode);

class SerializeIteratorKernel : public Kernel {
 public:
  explicit SerializeIteratorKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator, ctx.resource<IteratorResource>(0));
    MR_ASSIGN_OR_RETURN(IteratorPosition position, iterator->Save());
    Tensor out(DType::kVariant, Shape());
    out.scalar<Variant>() = Variant(MakeRef<IteratorPositionValue>(std::move(position)));
    ctx.SetOutput(0, std::move(out));
    return absl::OkStatus();
  }
};

class DeserializeIteratorKernel : public Kernel {
 public:
  explicit DeserializeIteratorKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const RefPtr<IteratorResource> iterator, ctx.resource<IteratorResource>(0));
    const Tensor& serialized = ctx.input(1);
    if (serialized.num_elements() != 1) {
      return InvalidArgument("serialized must be a scalar, not of shape ", serialized.shape().ToString());
    }
    const Variant& variant = serialized.scalar<Variant>();
    const auto* const value = variant.Get<IteratorPositionValue>();
    if (value == nullptr) {
      return InvalidArgument("serialized must be the position of an iterator, not ", variant.DebugString());
    }
    const UpdateOrigin origin = UpdateOrigin::Of(ctx);
    return ctx.resources()->Update(origin, [&] { return iterator->Restore(value->position); });
  }
};

MILLRACE_OP(SerializeIterator)
    .Input("resource_handle: resource")
    .Output("serialized: variant")
    .Attr("external_state_policy: int = 0")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The position of an iterator.");

MILLRACE_OP(DeserializeIterator)
    .Input("resource_handle: resource")
    .Input("serialized: variant")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("Moves an iterator to a position that was saved.");

MILLRACE_KERNEL(SerializeIterator, kCpu, SerializeIteratorKernel);
MILLRACE_KERNEL(DeserializeIterator, kCpu, DeserializeIteratorKernel);

}  // namespace
}  // namespace millrace
