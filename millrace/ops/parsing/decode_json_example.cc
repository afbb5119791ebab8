// DecodeJSONExample: Examples written as JSON, in protobuf's mapping, as their bytes.
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver_util.h>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/proto/example.pb.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

namespace json = ::google::protobuf::util;

constexpr char kTypeUrl[] = "type.googleapis.com";

class DecodeJsonExampleKernel : public Kernel {
 public:
  explicit DecodeJsonExampleKernel(KernelInit&)
      : types_(json::NewTypeResolverForDescriptorPool(kTypeUrl, pb::Example::descriptor()->file()->pool())),
        example_url_(absl::StrCat(kTypeUrl, "/", pb::Example::descriptor()->full_name())) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
    for (int64_t i = 0, n = input.num_elements(); i < n; ++i) {
      const auto status = json::JsonToBinaryString(types_.get(), example_url_, input.data<std::string>()[i],
                                                   &out->data<std::string>()[i]);
      if (!status.ok()) {
        return InvalidArgument("Error while parsing JSON (element ", i,
                               "): ", std::string(status.message().data(), status.message().size()));
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<json::TypeResolver> types_;
  const std::string example_url_;
};

MILLRACE_OP(DecodeJSONExample)
    .Input("json_examples: string")
    .Output("binary_examples: string")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Converts Examples from JSON to serialized form.");
MILLRACE_KERNEL(DecodeJSONExample, kCpu, DecodeJsonExampleKernel);

}  // namespace
}  // namespace millrace
