#include "millrace/estimator/model_graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/replica_device_setter.h"
#include "millrace/strategy/distribute_dataset.h"

namespace millrace::estimator_internal {
namespace {

const char* NameOf(ModelMode mode) {
  switch (mode) {
    case ModelMode::kTrain:
      return "training";
    case ModelMode::kEval:
      return "evaluation";
    case ModelMode::kPredict:
      break;
  }
  return "prediction";
}

Scope NewScopeFor(const ModelGraphOptions& options) {
  if (options.strategy != nullptr) return options.strategy->NewScope();
  const RunConfig& config = options.config;
  const Scope root = Scope::NewRoot();
  if (options.mode != ModelMode::kTrain || config.num_ps_replicas() == 0) return root;
  return root.WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = config.num_ps_replicas(),
                                                      .worker_device = config.task().task.name(),
                                                      .ps_strategy = GreedyStrategy(config.num_ps_replicas())}));
}

DistributeOptions BatchesFor(const ModelGraphOptions& options, const DistributeOptions& given) {
  DistributeOptions batches = given;
  if (options.mode != ModelMode::kTrain) {
    batches.shuffle_buffer = -1;
    batches.repeat = 1;
    batches.drop_remainder = false;
    batches.first_batch = 0;
  } else if (options.strategy != nullptr && options.strategy->is_synchronous() && given.first_batch == 0) {
    batches.first_batch = options.global_step;
  }
  return batches;
}

// Checks the number of components that a dataset has against the names that the input function gives them.
Status CheckComponents(const ModelGraphOptions& options, const EstimatorInput& input, size_t components) {
  const size_t all = input.features.size() + input.labels.size();
  if (components == all || (options.mode == ModelMode::kPredict && components == input.features.size()))
    return absl::OkStatus();
  return InvalidArgument("the elements of the input's dataset have ", components, " components, but there are ",
                         input.features.size(), " features and ", input.labels.size(), " labels");
}

// The arguments of the model function for one set of components.
StatusOr<ModelArgs> ArgsOf(const Scope& scope, const ModelGraphOptions& options, const EstimatorInput& input,
                           const std::vector<Output>& tensors) {
  ModelArgs args{.mode = options.mode, .params = options.params, .config = options.config};
  if (input.dataset) {
    for (size_t i = 0; i < input.features.size(); ++i) args.features[input.features[i]] = tensors[i];
    for (size_t i = 0; i < input.labels.size() && options.mode != ModelMode::kPredict; ++i)
      args.labels[input.labels[i]] = tensors[input.features.size() + i];
  } else {
    args.features = input.feature_tensors;
    args.labels = input.label_tensors;
  }
  if (input.transform != nullptr) {
    MR_RETURN_IF_ERROR(input.transform(scope.SubScope("transform"), &args.features, &args.labels));
    MR_RETURN_IF_ERROR(scope.status());
  }
  if (options.mode == ModelMode::kPredict) args.labels.clear();
  return args;
}

Status CheckSpec(const ModelGraphOptions& options, const Scope& scope, const EstimatorSpec& spec) {
  MR_RETURN_IF_ERROR(scope.status());
  const char* const what = NameOf(options.mode);
  if (options.mode == ModelMode::kPredict) {
    return spec.predictions.empty() ? InvalidArgument("the model function returned no predictions") : absl::OkStatus();
  }
  if (spec.loss.empty()) return InvalidArgument("the model function returned no loss for the ", what);
  if (spec.loss.shape().known_rank() && spec.loss.shape().rank() != 0) {
    return InvalidArgument("the model function's loss has shape ", spec.loss.shape().ToString(),
                           ", not that of a number");
  }
  if (options.mode == ModelMode::kEval) {
    for (const auto& [name, metric] : spec.eval_metric_ops) {
      if (metric.value.empty() || metric.update.empty()) return InvalidArgument("the metric ", name, " is empty");
      if (name == "loss") return InvalidArgument("a metric is called 'loss', which is the name of the model's loss");
    }
    return absl::OkStatus();
  }
  if (spec.optimizer != nullptr && !spec.train_op.empty())
    return InvalidArgument("the model function returned an optimizer and a train_op; give one of them");
  if (options.strategy != nullptr && spec.optimizer == nullptr) {
    return InvalidArgument("the model function returned no optimizer, which the strategy ", options.strategy->name(),
                           " needs in place of a train_op");
  }
  if (spec.optimizer == nullptr && spec.train_op.empty())
    return InvalidArgument("the model function returned neither an optimizer nor a train_op");
  return absl::OkStatus();
}

// The metrics of an evaluation: those of the model and the mean of its losses.
std::map<std::string, streaming::Metric> MetricsOf(const Scope& scope, const EstimatorSpec& spec) {
  std::map<std::string, streaming::Metric> all = spec.eval_metric_ops;
  all["loss"] = streaming::Mean(scope.WithOpName("mean_loss"), spec.loss);
  return all;
}

Status BuildAlone(const ModelGraphOptions& options, const EstimatorInput& input, ModelGraph* graph) {
  const Scope& scope = graph->scope;
  if (input.dataset) {
    if (graph->empty) return absl::OkStatus();
    const std::vector<Tensor>& first = *graph->input->first();
    MR_RETURN_IF_ERROR(CheckComponents(options, input, first.size()));
    if (!input.shapes.empty() && input.shapes.size() < first.size())
      return InvalidArgument("the input has ", first.size(), " components and ", input.shapes.size(), " shapes");
    for (size_t i = 0; i < first.size(); ++i) {
      PartialShape shape(first[i].shape());
      if (shape.rank() > 0) shape.set_dim(0, -1);
      if (!input.shapes.empty()) shape = input.shapes[i];
      const std::string name = i < input.features.size() ? input.features[i] : input.labels[i - input.features.size()];
      graph->feeds.push_back(Op(scope.WithOpName(absl::StrCat("input/", name)), "Placeholder", {},
                                {{"dtype", first[i].dtype()}, {"shape", shape}}));
    }
  }
  MR_ASSIGN_OR_RETURN(const ModelArgs args, ArgsOf(scope, options, input, graph->feeds));
  EstimatorSpec& spec = graph->spec;
  spec = options.model(scope, args);
  MR_RETURN_IF_ERROR(CheckSpec(options, scope, spec));
  graph->loss = spec.loss;
  if (options.mode == ModelMode::kTrain) {
    graph->train = spec.train_op;
    if (spec.optimizer != nullptr) {
      if (!spec.minimize.global_step) spec.minimize.global_step = GlobalStep(scope);
      graph->train = spec.optimizer->Minimize(scope, spec.loss, spec.minimize);
    }
  } else if (options.mode == ModelMode::kEval) {
    std::vector<Operation> updates;
    for (const auto& [name, metric] : MetricsOf(scope, spec)) {
      updates.push_back(metric.update);
      graph->metrics.emplace_back(name, metric.value);
    }
    graph->update = Group(scope.WithOpName("update_metrics"), updates);
  }
  return scope.status();
}

Status BuildWithStrategy(const ModelGraphOptions& options, const EstimatorInput& input,
                         const DistributeOptions& batches, ModelGraph* graph) {
  Strategy& strategy = *options.strategy;
  const Scope& scope = graph->scope;
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> peek, input.dataset->MakeIterator());
  std::vector<Tensor> example;
  MR_ASSIGN_OR_RETURN(const bool any, peek->Next(&example));
  if (!any) return OutOfRange("the input of the ", NameOf(options.mode), " has no examples");
  MR_RETURN_IF_ERROR(CheckComponents(options, input, example.size()));
  std::vector<InputSpec> specs;
  for (const Tensor& component : example) specs.push_back({component.dtype(), PartialShape(component.shape())});
  const ReplicaInputs inputs = strategy.MakeInputs(scope, batches.batch_size, specs, batches.drop_remainder);
  graph->feeds = inputs.feeds;

  std::vector<EstimatorSpec> of_replicas;
  std::vector<Operation> updates;
  std::map<std::string, streaming::Metric> metrics;
  Status wrong;
  const PerReplica losses = strategy.Run(
      scope, inputs, Strategy::ReplicaFn([&](const Scope& replica, const std::vector<Output>& tensors) -> Output {
        const StatusOr<ModelArgs> args = ArgsOf(replica, options, input, tensors);
        wrong.Update(args.status());
        if (!wrong.ok()) return Output(replica, Endpoint{});
        EstimatorSpec spec = options.model(replica, *args);
        wrong.Update(CheckSpec(options, replica, spec));
        if (!wrong.ok()) return Output(replica, Endpoint{});
        if (options.mode == ModelMode::kEval) {
          const std::map<std::string, streaming::Metric> own = MetricsOf(replica, spec);
          for (const auto& [name, metric] : own) updates.push_back(metric.update);
          if (metrics.empty()) metrics = own;
        }
        const Output loss = spec.loss;
        of_replicas.push_back(std::move(spec));
        return loss;
      }));
  MR_RETURN_IF_ERROR(wrong);
  MR_RETURN_IF_ERROR(scope.status());
  graph->spec = std::move(of_replicas[0]);
  if (options.mode == ModelMode::kTrain) {
    graph->loss = strategy.Reduce(scope, ReplicaReduction::kMean, losses);
    graph->train = strategy.Minimize(scope, *graph->spec.optimizer, losses, graph->spec.minimize);
    return scope.status();
  }
  graph->update = Group(scope.WithOpName("update_metrics"), updates);
  for (const auto& [name, metric] : metrics) {
    if (metric.result == nullptr) {
      return InvalidArgument("the metric ", name, " has no totals, of which the replicas of ", strategy.name(),
                             " could make one value");
    }
    std::vector<Output> totals;
    for (const Var& total : metric.totals) totals.push_back(strategy.ReadVariable(scope, total));
    MR_RETURN_IF_ERROR(scope.status());
    graph->metrics.emplace_back(name, metric.result(scope.WithOpName(name), totals));
  }
  return scope.status();
}

class CheckpointSessions : public SessionCreator {
 public:
  CheckpointSessions(SessionOptions session, std::shared_ptr<Scaffold> scaffold, std::string checkpoint)
      : session_(std::move(session)), scaffold_(std::move(scaffold)), checkpoint_(std::move(checkpoint)) {
    if (scaffold_ == nullptr) scaffold_ = std::make_shared<Scaffold>();
  }

  Status Begin(const Scope& scope) override {
    scope_ = scope;
    return scaffold_->Finalize(scope, {.saver = !GlobalVariables(scope).empty()});
  }

  StatusOr<PreparedSession> CreateSession(const CreateSessionOptions&) override {
    MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(*scope_, session_));
    PreparedSession made{.session = std::make_unique<ClientSession>(std::move(session)), .restored_from = checkpoint_};
    if (scaffold_->saver != nullptr) MR_RETURN_IF_ERROR(scaffold_->saver->Restore(made.session.get(), checkpoint_));
    if (!scaffold_->local_init_op.empty()) {
      MR_RETURN_IF_ERROR(made.session->Run(scaffold_->local_init_feed, {}, {scaffold_->local_init_op}).status());
    }
    return made;
  }

 private:
  const SessionOptions session_;
  std::shared_ptr<Scaffold> scaffold_;
  const std::string checkpoint_;
  std::optional<Scope> scope_;
};

}  // namespace

StatusOr<std::unique_ptr<InputFeed>> InputFeed::Of(std::unique_ptr<DatasetIterator> batches, bool counts) {
  auto feed = std::unique_ptr<InputFeed>(new InputFeed);
  feed->batches_ = std::move(batches);
  feed->counts_ = counts;
  MR_ASSIGN_OR_RETURN(feed->has_first_, feed->Read(&feed->first_));
  return feed;
}

StatusOr<bool> InputFeed::Read(std::vector<Tensor>* feeds) {
  while (true) {
    MR_ASSIGN_OR_RETURN(const bool more, batches_->Next(feeds));
    if (!more || !counts_) return more;
    const bool has_examples = feeds->back().scalar<int64_t>() > 0;
    feeds->pop_back();
    if (has_examples) return true;
  }
}

StatusOr<bool> InputFeed::Next(std::vector<Tensor>* feeds) {
  if (batches_ == nullptr) {
    feeds->clear();
    return true;
  }
  if (!has_first_) return Read(feeds);
  has_first_ = false;
  *feeds = std::move(first_);
  return true;
}

StatusOr<ModelGraph> BuildModel(const ModelGraphOptions& options, const InputFn& input_fn) {
  if (input_fn == nullptr) return InvalidArgument("the ", NameOf(options.mode), " has no input function");
  ModelGraph graph;
  graph.scope = NewScopeFor(options);
  if (options.config.options().tf_random_seed) graph.scope.SetRandomSeed(*options.config.options().tf_random_seed);
  GlobalStep(graph.scope);
  Strategy* const strategy = options.strategy;
  InputContext context{.mode = options.mode};
  if (strategy != nullptr) {
    context.num_input_pipelines = strategy->num_workers();
    context.input_pipeline_id = strategy->worker_index();
  } else if (options.mode == ModelMode::kTrain) {
    context.num_input_pipelines = options.config.num_worker_replicas();
    context.input_pipeline_id = options.config.worker_index();
  }
  MR_ASSIGN_OR_RETURN(const EstimatorInput input, input_fn(graph.scope, context));
  MR_RETURN_IF_ERROR(graph.scope.status());
  if (input.dataset.has_value() == !input.feature_tensors.empty())
    return InvalidArgument("an input function must return either a dataset or feature_tensors");
  if (!input.dataset && (input.batches || strategy != nullptr)) {
    return InvalidArgument("the input function returned tensors, ",
                           strategy != nullptr ? "but a strategy needs a dataset" : "of which no batches can be made");
  }
  if (strategy != nullptr && !input.batches) {
    return InvalidArgument("the input function returned a dataset of batches, but the strategy ", strategy->name(),
                           " makes its own: return single examples, and EstimatorInput::batches");
  }
  if (!input.dataset) {
    graph.input = InputFeed::OfTensors();
  } else if (!input.batches) {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches, input.dataset->MakeIterator());
    MR_ASSIGN_OR_RETURN(graph.input, InputFeed::Of(std::move(batches)));
  } else {
    const DistributeOptions distribute = BatchesFor(options, *input.batches);
    if (strategy != nullptr) {
      MR_RETURN_IF_ERROR(BuildWithStrategy(options, input, distribute, &graph));
      MR_ASSIGN_OR_RETURN(const Dataset batches, strategy->DistributeDataset(*input.dataset, distribute));
      MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> iterator,
                          strategy->MakeIterator(batches, distribute.drop_remainder));
      MR_ASSIGN_OR_RETURN(graph.input, InputFeed::Of(std::move(iterator)));
      return graph;
    }
    const int index = context.input_pipeline_id;
    MR_ASSIGN_OR_RETURN(const Dataset own, ExamplesOfReplicas(*input.dataset, context.num_input_pipelines,
                                                              {index, index + 1}, distribute));
    MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> batches, own.MakeIterator());
    MR_ASSIGN_OR_RETURN(graph.input, InputFeed::Of(std::move(batches), !distribute.drop_remainder));
  }
  graph.empty = input.dataset && graph.input->first() == nullptr;
  if (graph.empty && options.mode == ModelMode::kTrain) return OutOfRange("the input of the training has no batch");
  MR_RETURN_IF_ERROR(BuildAlone(options, input, &graph));
  return graph;
}

std::unique_ptr<SessionCreator> CheckpointSessionCreator(SessionOptions session, std::shared_ptr<Scaffold> scaffold,
                                                         std::string checkpoint) {
  return std::make_unique<CheckpointSessions>(std::move(session), std::move(scaffold), std::move(checkpoint));
}

}  // namespace millrace::estimator_internal
