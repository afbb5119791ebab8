// Fits a straight line: the program of the README.
#include <iostream>

#include "millrace/millrace.h"

using namespace millrace;

int main() {
  Scope scope = Scope::NewRoot();
  Output x = ops::Placeholder(scope, DType::kFloat, {.shape = {-1, 1}});
  Output y = ops::Placeholder(scope, DType::kFloat, {.shape = {-1, 1}});
  Output fit = layers::Dense(scope, x, 1);
  Output loss = losses::MeanSquaredError(scope, y, fit);
  Operation train = optimizers::GradientDescent({.learning_rate = 0.1}).Minimize(scope, loss);
  Operation init = GlobalVariablesInitializer(scope);

  ClientSession session = ClientSession::Create(scope).value();
  session.Run({}, {}, {init}).value();
  Tensor xs = Tensor::Of<float>({4, 1}, {0, 1, 2, 3}), ys = Tensor::Of<float>({4, 1}, {-1, 2, 5, 8});  // y = 3x - 1
  for (int i = 0; i < 500; ++i) session.Run({{x, xs}, {y, ys}}, {}, {train}).value();
  std::cout << session.Run({{x, Tensor::Of<float>({1, 1}, {10})}}, {fit}).value()[0].DebugString() << "\n";
}
