// While and For: call a function repeatedly.
#include <atomic>
#include <memory>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/functional/function_call.h"
#include "millrace/ops/functional/functional_shapes.h"
#include "millrace/ops/functional/to_bool.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

Status LoopNotExpanded(GradientContext& c) {
  return Unimplemented("the gradient of a ", c.node()->type(), " within a function that calls itself is not supported");
}

// A sequence of asynchronous steps. A step that completes synchronously continues in the same loop instead of
// recursing.
class Chain : public std::enable_shared_from_this<Chain> {
 public:
  Chain(KernelContext& ctx, int first_input, Kernel::Done done)
      : ctx_(ctx), values_(InputsFrom(ctx, first_input)), done_(std::move(done)) {}
  virtual ~Chain() = default;

  void Go() {
    const std::shared_ptr<Chain> keep = shared_from_this();
    do {
      second_.store(false);
      if (ctx_.cancellation() != nullptr && ctx_.cancellation()->IsCancelled()) {
        Finish(ctx_.cancellation()->status());
        return;
      }
      Step();
    } while (second_.exchange(true));
  }

 protected:
  // Begins one step, which ends by calling Next or Finish on any thread, possibly before returning.
  virtual void Step() = 0;

  // The second to arrive continues: the loop in Go if the step ended within it, otherwise this thread.
  void Next() {
    if (second_.exchange(true)) Go();
  }
  void Finish(Status status) {
    if (status.ok()) status = SetOutputs(ctx_, "the loop's body", std::move(values_));
    done_(std::move(status));
  }
  // Calls `function` on `args` and passes its results to `then`, or ends the chain with its error.
  void Call(NamedFunction& function, std::vector<Tensor> args, absl::AnyInvocable<void(std::vector<Tensor>)> then) {
    StatusOr<std::shared_ptr<CallableFunction>> f = function.Get(ctx_.step());
    if (!f.ok()) {
      Finish(f.status());
      return;
    }
    (*f)->Run(ctx_.step(), CallSite(ctx_), std::move(args),
              [this, keep = shared_from_this(), then = std::move(then)](StatusOr<std::vector<Tensor>> results) mutable {
                if (results.ok()) {
                  then(*std::move(results));
                } else {
                  Finish(results.status());
                }
              });
  }

  KernelContext& ctx_;
  std::vector<Tensor> values_;

 private:
  Kernel::Done done_;
  std::atomic<bool> second_{false};
};

class WhileKernel : public AsyncKernel {
 public:
  explicit WhileKernel(KernelInit& init) {
    pb::NameAttrList f;
    init.Attr("cond", &f);
    cond_.Set(f);
    init.Attr("body", &f);
    body_.Set(f);
  }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    std::make_shared<Loop>(this, ctx, std::move(done))->Go();
  }

 private:
  class Loop : public Chain {
   public:
    Loop(WhileKernel* kernel, KernelContext& ctx, Done done) : Chain(ctx, 0, std::move(done)), kernel_(kernel) {}
    void Step() override {
      Call(kernel_->cond_, values_, [this](std::vector<Tensor> results) {
        if (results.size() != 1) {
          Finish(InvalidArgument("Expected a single scalar return value from the condition '", kernel_->cond_.name(),
                                 "' of a loop, got ", results.size(), " tensors."));
          return;
        }
        const StatusOr<bool> truth = ToBool(results[0]);
        if (!truth.ok() || !*truth) {
          Finish(truth.status());
          return;
        }
        const size_t n = values_.size();
        Call(kernel_->body_, std::move(values_), [this, n](std::vector<Tensor> next) {
          if (next.size() != n) {
            Finish(InvalidArgument("While loop body returned ", next.size(), " arguments. Expected: ", n,
                                   " (function '", kernel_->body_.name(), "')"));
            return;
          }
          values_ = std::move(next);
          Next();
        });
      });
    }

   private:
    WhileKernel* const kernel_;
  };

  NamedFunction cond_, body_;
};

class ForKernel : public AsyncKernel {
 public:
  explicit ForKernel(KernelInit& init) {
    pb::NameAttrList f;
    init.Attr("body", &f);
    body_.Set(f);
  }
  void ComputeAsync(KernelContext& ctx, Done done) override {
    int32_t range[3];
    static constexpr const char* kNames[] = {"start", "limit", "delta"};
    for (int i = 0; i < 3; ++i) {
      if (ctx.input(i).rank() != 0) {
        done(InvalidArgument(kNames[i], " must be a scalar, but it has shape ", ctx.input(i).shape().ToString()));
        return;
      }
      range[i] = ctx.input(i).scalar<int32_t>();
    }
    const bool up = range[2] > 0 && range[0] <= range[1], down = range[2] < 0 && range[0] >= range[1];
    if (!up && !down) {
      done(InvalidArgument("Invalid start/limit/delta: ", range[0], " ", range[1], " ", range[2],
                           ": the loop never ends"));
      return;
    }
    std::make_shared<Loop>(this, ctx, range, std::move(done))->Go();
  }

 private:
  class Loop : public Chain {
   public:
    Loop(ForKernel* kernel, KernelContext& ctx, const int32_t* range, Done done)
        : Chain(ctx, 3, std::move(done)), kernel_(kernel), at_(range[0]), limit_(range[1]), delta_(range[2]) {}
    void Step() override {
      if (delta_ > 0 ? at_ >= limit_ : at_ <= limit_) {
        Finish(absl::OkStatus());
        return;
      }
      const size_t n = values_.size();
      std::vector<Tensor> args = {Tensor::Scalar<int32_t>(static_cast<int32_t>(at_))};
      for (Tensor& value : values_) args.push_back(std::move(value));
      Call(kernel_->body_, std::move(args), [this, n](std::vector<Tensor> next) {
        if (next.size() != n) {
          Finish(InvalidArgument("For loop body returned ", next.size(), " arguments. Expected: ", n, " (function '",
                                 kernel_->body_.name(), "')"));
          return;
        }
        values_ = std::move(next);
        at_ += delta_;
        Next();
      });
    }

   private:
    ForKernel* const kernel_;
    int64_t at_;
    const int64_t limit_, delta_;
  };

  NamedFunction body_;
};

MILLRACE_OP(While)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 0")
    .Attr("cond: func")
    .Attr("body: func")
    .Attr("output_shapes: list(shape) = []")
    .Attr("parallel_iterations: int = 10")
    .Stateful()
    .Shape(DeclaredShapes)
    .Gradient(LoopNotExpanded)
    .Call(CallKind::kWhile)
    .Summary("Applies body to the loop variables while cond is true.");

MILLRACE_OP(StatelessWhile)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 0")
    .Attr("cond: func")
    .Attr("body: func")
    .Attr("output_shapes: list(shape) = []")
    .Attr("parallel_iterations: int = 10")
    .Shape(DeclaredShapes)
    .Gradient(LoopNotExpanded)
    .Call(CallKind::kWhile)
    .Summary("While with functions without side effects.");

MILLRACE_OP(_While)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 0")
    .Attr("cond: func")
    .Attr("body: func")
    .Stateful()
    .Shape(DeclaredShapes)
    .Gradient(LoopNotExpanded)
    .Call(CallKind::kWhile)
    .Summary("An old form of While.");

MILLRACE_OP(For)
    .Input("start: int32")
    .Input("limit: int32")
    .Input("delta: int32")
    .Input("input: T")
    .Output("output: T")
    .Attr("T: list(type) >= 0")
    .Attr("body: func")
    .Shape(DeclaredShapes)
    .NotDifferentiable()
    .Summary("Applies body to each number from start to limit and to the loop variables.");

MILLRACE_KERNEL(While, kCpu, WhileKernel);
MILLRACE_KERNEL(StatelessWhile, kCpu, WhileKernel);
MILLRACE_KERNEL(_While, kCpu, WhileKernel);
MILLRACE_KERNEL(For, kCpu, ForKernel);

}  // namespace
}  // namespace millrace
