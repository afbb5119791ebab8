// Data-parallel training without a parameter server: each worker computes the gradients of its own examples, all
// workers average them, and each applies the average to its own copy of the variables, which therefore stay the same.
//
//   millrace launch --ps 0 --workers 4 -- all_reduce
//
// Without the launcher it is a training of one worker.
#include <iostream>

#include "millrace/millrace.h"

using namespace millrace;

namespace {

Status Train() {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerGroup> workers, WorkerGroup::FromEnvironment());

  Scope scope = Scope::NewRoot();
  scope.SetRandomSeed(1 + workers->rank());  // other first values on each worker, until the broadcast
  const Output x = ops::Placeholder(scope, DType::kFloat, {.shape = {-1, 1}});
  const Output y = ops::Placeholder(scope, DType::kFloat, {.shape = {-1, 1}});
  const Output fit = layers::Dense(scope, x, 1);
  const Output loss = losses::MeanSquaredError(scope, y, fit);
  optimizers::GradientDescent optimizer({.learning_rate = 0.1});
  std::vector<Output> gradients, values;
  ClientSession::Feeds averages;
  std::vector<GradAndVar> averaged;
  std::vector<Operation> assignments;
  ClientSession::Feeds first_values;
  for (const GradAndVar& pair : optimizer.ComputeGradients(scope, loss)) {
    gradients.push_back(pair.gradient.dense());
    values.push_back(pair.variable);
    const Output average = ops::Placeholder(scope, DType::kFloat);
    const Output first = ops::Placeholder(scope, DType::kFloat);
    averages.emplace_back(average, Tensor());
    averaged.push_back({average, pair.variable});
    first_values.emplace_back(first, Tensor());
    assignments.push_back(pair.variable.Assign(scope, first));
  }
  const Operation apply = optimizer.ApplyGradients(scope, averaged);
  const Operation init = GlobalVariablesInitializer(scope);
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(scope));
  MR_RETURN_IF_ERROR(session.Run({}, {}, {init}).status());

  // All begin with the values of worker 0.
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> own, session.Run({}, values));
  for (size_t i = 0; i < own.size(); ++i) {
    MR_RETURN_IF_ERROR(workers->Broadcast(&own[i], /*root=*/0));
    first_values[i].second = own[i];
  }
  MR_RETURN_IF_ERROR(session.Run(first_values, {}, assignments).status());

  // The worker's own points of y = 3x - 1.
  const auto at = static_cast<float>(workers->rank());
  const Tensor xs = Tensor::Of<float>({2, 1}, {at / 4, 1 + at / 4});
  const Tensor ys = Tensor::Of<float>({2, 1}, {3 * at / 4 - 1, 3 * (1 + at / 4) - 1});
  for (int step = 0; step < 1000; ++step) {
    MR_ASSIGN_OR_RETURN(std::vector<Tensor> now, session.Run({{x, xs}, {y, ys}}, gradients));
    for (size_t i = 0; i < now.size(); ++i) {
      MR_RETURN_IF_ERROR(workers->AllReduce(&now[i], collective::Reduction::kMean));
      averages[i].second = now[i];
    }
    MR_RETURN_IF_ERROR(session.Run(averages, {}, {apply}).status());
  }
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> at_ten, session.Run({{x, Tensor::Of<float>({1, 1}, {10})}}, {fit}));
  MR_ASSIGN_OR_RETURN(const Tensor all, workers->AllGather(at_ten[0]));
  std::cout << "worker " << workers->rank() << " of " << workers->size() << ": all fits at 10 are " << all.DebugString()
            << std::endl;
  return workers->Leave();
}

}  // namespace

int main() {
  const Status status = Train();
  if (status.ok()) return 0;
  std::cerr << "all_reduce: " << status << "\n";
  return 1;
}
