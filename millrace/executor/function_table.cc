#include "millrace/executor/function_table.h"

#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "millrace/graph/function.h"

namespace millrace {
namespace {

// After this many nested calls on one stack, the next call continues on another thread.
constexpr int kCallsPerStack = 16;

std::string KeyOf(const pb::NameAttrList& function) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  function.SerializeToCodedStream(&out);
  out.Trim();
  return bytes;
}

class CompiledFunction : public CallableFunction, public std::enable_shared_from_this<CompiledFunction> {
 public:
  CompiledFunction(std::string name, std::vector<DType> arg_types, size_t num_results, std::unique_ptr<Plan> plan,
                   RefPtr<MemoryBudget> memory)
      : name_(std::move(name)),
        arg_types_(std::move(arg_types)),
        num_results_(num_results),
        plan_(std::move(plan)),
        memory_(std::move(memory)) {}

  void Run(const StepContext& step, uint64_t site, std::vector<Tensor> args, Done done) override {
    if (Status status = Check(step, args); !status.ok()) {
      done(std::move(status));
      return;
    }
    auto call = std::make_unique<Call>();
    call->self = shared_from_this();
    call->step = step.ForCall(site);
    call->args = std::move(args);
    call->results.resize(num_results_);
    call->arena = TakeArena();
    call->done = std::move(done);
    const bool deep = call->step.call_depth % kCallsPerStack == 0 && step.inter_op != nullptr;
    if (deep) {
      step.inter_op->Schedule([this, call = std::move(call)]() mutable { Start(std::move(call)); });
    } else {
      Start(std::move(call));
    }
  }

 private:
  // One run; lives until it has ended.
  struct Call {
    std::shared_ptr<CompiledFunction> self;
    StepContext step;
    std::vector<Tensor> args;
    std::vector<Tensor> results;
    RefPtr<StepArena> arena;
    Done done;
  };

  Status Check(const StepContext& step, const std::vector<Tensor>& args) const {
    if (step.call_depth >= FunctionTable::kMaxDepth) {
      return ResourceExhausted("function '", name_, "' is called more than ", FunctionTable::kMaxDepth,
                               " deep: a recursion that does not end?");
    }
    if (args.size() != arg_types_.size()) {
      return InvalidArgument("function '", name_, "' takes ", arg_types_.size(), " arguments, ", args.size(),
                             " were given");
    }
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].dtype() != arg_types_[i]) {
        return InvalidArgument("argument ", i, " of function '", name_, "' is ", DTypeName(arg_types_[i]), ", but ",
                               DTypeName(args[i].dtype()), " was given");
      }
    }
    return absl::OkStatus();
  }

  void Start(std::unique_ptr<Call> call) {
    Call* const c = call.release();
    plan_->RunAsync({.step = &c->step, .feeds = c->args, .allocator = c->arena.get()}, absl::MakeSpan(c->results),
                    [this, c](Status status) { End(std::unique_ptr<Call>(c), std::move(status)); });
  }

  void End(std::unique_ptr<Call> call, Status status) {
    GiveBack(std::move(call->arena));
    call->args.clear();
    StatusOr<std::vector<Tensor>> result =
        status.ok() ? StatusOr<std::vector<Tensor>>(std::move(call->results)) : status;
    // The completions of nested calls use stack space just as their starts do.
    if (call->step.call_depth % kCallsPerStack == 0 && call->step.inter_op != nullptr) {
      Scheduler* const pool = call->step.inter_op;
      pool->Schedule([done = std::move(call->done), result = std::move(result),
                      self = std::move(call->self)]() mutable { done(std::move(result)); });
      return;
    }
    const std::shared_ptr<CompiledFunction> self = std::move(call->self);
    Done done = std::move(call->done);
    call.reset();
    done(std::move(result));
  }

  RefPtr<StepArena> TakeArena() {
    MutexLock lock(&mu_);
    if (idle_.empty()) return MakeRef<StepArena>(memory_);
    RefPtr<StepArena> arena = std::move(idle_.back());
    idle_.pop_back();
    return arena;
  }
  void GiveBack(RefPtr<StepArena> arena) {
    MutexLock lock(&mu_);
    if (idle_.size() < 16) idle_.push_back(std::move(arena));
  }

  const std::string name_;
  const std::vector<DType> arg_types_;
  const size_t num_results_;
  const std::unique_ptr<Plan> plan_;
  const RefPtr<MemoryBudget> memory_;
  Mutex mu_;
  std::vector<RefPtr<StepArena>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void FunctionTable::UseLibrary(const Graph& graph) {
  MutexLock lock(&mu_);
  library_.ShareLibrary(graph);
  library_.set_versions(graph.versions());
}

StatusOr<std::shared_ptr<CallableFunction>> FunctionTable::Instantiate(const pb::NameAttrList& function) {
  const std::string key = KeyOf(function);
  Graph library;
  {
    MutexLock lock(&mu_);
    if (const auto it = functions_.find(key); it != functions_.end()) return it->second;
    library.ShareLibrary(library_);
    library.set_versions(library_.versions());
  }
  MR_ASSIGN_OR_RETURN(std::shared_ptr<CallableFunction> compiled, Compile(library, function));
  MutexLock lock(&mu_);
  return functions_.try_emplace(key, std::move(compiled)).first->second;
}

StatusOr<std::shared_ptr<CallableFunction>> FunctionTable::Compile(const Graph& library,
                                                                   const pb::NameAttrList& function) const {
  FunctionBody body;
  if (function.name() == "SymbolicGradient") {
    const auto it = function.attr().find("f");
    if (it == function.attr().end())
      return InvalidArgument("SymbolicGradient lacks the attr f, the function to differentiate");
    MR_ASSIGN_OR_RETURN(body, GradientFunction(library, it->second.func()));
  } else {
    MR_ASSIGN_OR_RETURN(body, InstantiateFunction(library, function));
  }
  PassContext context;
  context.targets = SideEffects(body);
  context.fetches = body.rets;
  std::vector<DType> arg_types;
  for (Node* arg : body.args) {
    context.feeds.push_back(arg->output(0));
    arg_types.push_back(arg->output_type(0));
  }
  CompileOptions options = options_;
  options.make_kernel = nullptr;  // functions do not share kernels
  const size_t num_results = body.rets.size();
  StatusOr<std::unique_ptr<Plan>> plan = CompileGraph(std::move(body.graph), std::move(context), options);
  if (!plan.ok()) return WithPrefix(absl::StrCat("function '", body.name, "': "), plan.status());
  return std::make_shared<CompiledFunction>(body.name, std::move(arg_types), num_results, *std::move(plan),
                                            options_.memory);
}

}  // namespace millrace
