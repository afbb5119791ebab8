// Measures hvd's allreduce, with its negotiation, over either carrier.
//
//   mpirun -np 2 horovod_bench --carrier lane
//   mpirun -np 2 horovod_bench --carrier mpi
//   millrace launch --ps 0 --workers 2 -- horovod_bench
//
// Rank 0 prints a JSON line for each case: the median time of a round of one tensor of some size, and of 100 tensors of
// 4 KB that are submitted together, as the gradients of a small network are.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "millrace/millrace.h"

using namespace millrace;

namespace {

StatusOr<double> MedianMicros(int tensors, int64_t floats, int rounds) {
  const std::vector<Tensor> values(tensors, Tensor(DType::kFloat, Shape({floats})).Clone());
  for (const Tensor& value : values) std::fill_n(static_cast<float*>(value.raw_data()), floats, 1.0f);
  std::vector<double> micros;
  for (int round = 0; round < rounds; ++round) {
    const absl::Time begin = Clock::Real()->Now();
    std::vector<hvd::Handle> handles;
    for (int i = 0; i < tensors; ++i)
      handles.push_back(
          hvd::AllreduceAsync(values[i], {.name = absl::StrCat("t", i, " of ", floats), .op = hvd::kSum}));
    for (const hvd::Handle& handle : handles) {
      MR_ASSIGN_OR_RETURN(const Tensor sum, handle.Wait());
      if (sum.data<float>()[floats - 1] != static_cast<float>(hvd::Size())) return Internal("a wrong sum");
    }
    micros.push_back(absl::ToDoubleMicroseconds(Clock::Real()->Now() - begin));
  }
  std::nth_element(micros.begin(), micros.begin() + rounds / 2, micros.end());
  return micros[rounds / 2];
}

Status Run(const std::string& carrier) {
  MR_RETURN_IF_ERROR(hvd::Init({.carrier = carrier}));
  struct Case {
    int tensors;
    int64_t bytes;
    int rounds;
  };
  for (const Case& c : {Case{1, 4, 2000}, Case{1, 1 << 10, 2000}, Case{1, 1 << 20, 300}, Case{1, 25 << 20, 40},
                        Case{1, 100 << 20, 15}, Case{100, 4 << 10, 300}}) {
    MR_ASSIGN_OR_RETURN(const double micros, MedianMicros(c.tensors, c.bytes / 4, c.rounds));
    if (hvd::Rank() != 0) continue;
    std::printf("{\"carrier\": \"%s\", \"ranks\": %d, \"tensors\": %d, \"bytes\": %lld, \"us\": %.1f}\n",
                carrier.c_str(), hvd::Size(), c.tensors, static_cast<long long>(c.bytes), micros);
    std::fflush(stdout);
  }
  return hvd::Shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  std::string carrier = "auto";
  CLI::App app("Measures hvd's allreduce.");
  app.add_option("--carrier", carrier, "auto, lane or mpi")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const Status status = Run(carrier);
  if (status.ok()) return 0;
  std::cerr << "horovod_bench: " << status << "\n";
  return 1;
}
