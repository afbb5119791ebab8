// Millrace's side of bench/saved_model: loads a model, predicts once, and prints a JSON line.
#include <algorithm>
#include <chrono>
#include <iostream>

#include "absl/strings/str_format.h"
#include "bench/measure.h"
#include "millrace/millrace.h"

namespace millrace {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Status Measure(const std::string& directory) {
  const double begin = Now();
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> model, LoadSavedModel({}, directory));
  const double loaded = Now();
  MR_ASSIGN_OR_RETURN(const pb::SignatureDef* signature, model->FindSignature(kDefaultSignature));
  Tensor x(DType::kFloat, Shape({1, signature->inputs().at("x").tensor_shape().dim(1).size()}));
  std::fill_n(x.data<float>(), x.num_elements(), 1.0f);
  MR_ASSIGN_OR_RETURN(const SavedModel::NamedTensors outputs, model->Predict(kDefaultSignature, {{"x", x}}));
  const double end = Now();
  std::cout << absl::StrFormat("{\"load\": %f, \"predict\": %f, \"peak_mb\": %f, \"y\": %f}\n", loaded - begin,
                               end - loaded, bench::PeakMb(), outputs.at("y").data<float>()[0]);
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: saved_model_bench DIRECTORY\n";
    return 2;
  }
  const millrace::Status status = millrace::Measure(argv[1]);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
