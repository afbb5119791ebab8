// Print and PrintV2: print tensors while the graph runs.
#include <atomic>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/log.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/control_flow/summarize.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class PrintKernel : public Kernel {
 public:
  explicit PrintKernel(KernelInit& init) {
    init.Attr("message", &message_);
    init.Attr("first_n", &first_n_);
    init.Attr("summarize", &summarize_);
  }

  Status Compute(KernelContext& ctx) override {
    ctx.SetOutput(0, ctx.input(0));
    if (first_n_ >= 0 && calls_.fetch_add(1, std::memory_order_relaxed) >= first_n_) {
      return absl::OkStatus();
    }
    std::string line = message_;
    for (int i = 1; i < ctx.num_inputs(); ++i) {
      absl::StrAppend(&line, "[", SummarizeValues(ctx.input(i), summarize_), "]");
    }
    line.push_back('\n');
    std::fwrite(line.data(), 1, line.size(), stderr);
    return absl::OkStatus();
  }

 private:
  std::string message_;
  int64_t first_n_ = -1;
  int64_t summarize_ = 3;
  std::atomic<int64_t> calls_{0};
};

class PrintV2Kernel : public Kernel {
 public:
  explicit PrintV2Kernel(KernelInit& init) {
    init.Attr("output_stream", &stream_);
    init.Attr("end", &end_);
    static constexpr absl::string_view kStreams[] = {"stdout", "stderr", "log(info)", "log(warning)", "log(error)"};
    for (absl::string_view known : kStreams) {
      if (stream_ == known) return;
    }
    init.Fail(absl::StartsWith(stream_, "file://") ? Unimplemented("printing to a file: ", stream_)
                                                   : InvalidArgument("unknown output stream: ", stream_));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    if (input.rank() != 0) {
      return InvalidArgument("input must be a scalar, but it has shape ", input.shape().ToString());
    }
    const std::string& text = input.scalar<std::string>();
    if (stream_ == "log(info)") {
      MR_LOG(Info, text);
    } else if (stream_ == "log(warning)") {
      MR_LOG(Warning, text);
    } else if (stream_ == "log(error)") {
      MR_LOG(Error, text);
    } else {
      const std::string line = absl::StrCat(text, end_);
      std::FILE* const out = stream_ == "stdout" ? stdout : stderr;
      std::fwrite(line.data(), 1, line.size(), out);
      std::fflush(out);
    }
    return absl::OkStatus();
  }

 private:
  std::string stream_;
  std::string end_;
};

Status PrintShape(ShapeContext& c) {
  c.set_output(0, c.input(0));
  return absl::OkStatus();
}

Status PrintGradient(GradientContext& g) {
  g.set_input_grad(0, g.raw_grad(0));
  return absl::OkStatus();
}

MILLRACE_OP(Print)
    .Input("input: T")
    .Input("data: U")
    .Output("output: T")
    .Attr("T: type")
    .Attr("U: list(type) >= 0")
    .Attr("message: string = ''")
    .Attr("first_n: int = -1")
    .Attr("summarize: int = 3")
    .Stateful()
    .Shape(PrintShape)
    .Gradient(PrintGradient)
    .Summary("Forwards input and prints data to stderr, the first first_n times.");

MILLRACE_OP(PrintV2)
    .Input("input: string")
    .Attr("output_stream: string = 'stderr'")
    .Attr("end: string = '\n'")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("Writes a string to stderr, stdout or the log.");

MILLRACE_KERNEL(Print, kCpu, PrintKernel);
MILLRACE_KERNEL(PrintV2, kCpu, PrintV2Kernel);

}  // namespace
}  // namespace millrace
