// Millrace's side of bench/op_table: runs each GraphDef of a directory and prints one JSON line for it.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "bench/measure.h"
#include "millrace/graph/op_schema.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/session/session.h"

namespace millrace::bench {
namespace {

StatusOr<double> Microseconds(const std::filesystem::path& file, int threads, double seconds) {
  std::ifstream in(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  pb::GraphDef def;
  if (!def.ParseFromString(bytes)) return InvalidArgument("not a GraphDef: ", file.string());
  SessionOptions options;
  options.intra_op_threads = options.inter_op_threads = threads;
  // Rewrites are off: the op itself is measured, not what a rewrite makes of a hundred of them.
  options.passes = PassOptions::None();
  MR_ASSIGN_OR_RETURN(auto session, Session::Create(options));
  MR_RETURN_IF_ERROR(session->Extend(std::move(def)));
  MR_RETURN_IF_ERROR(session->RunTargets({"init"}));
  MR_ASSIGN_OR_RETURN(auto step, session->MakeCallable({.targets = {"all"}}));
  std::vector<Tensor> results;
  Status status;
  const double time = MedianSeconds(seconds, [&] {
    if (status.ok()) status = step->Run({}, &results);
  });
  if (!status.ok()) return status;
  return 1e6 * time;
}

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 32 ? ' ' : c;
  }
  return out + "\"";
}

int Main(int argc, char** argv) {
  std::string directory;
  int threads = 1;
  double seconds = 0.02;
  bool list = false;
  CLI::App app("Measures the ops that bench/op_table has written; prints one JSON line for each.");
  app.add_option("--directory", directory, "Directory with the GraphDefs");
  app.add_option("--threads", threads, "Threads of the session")->check(CLI::Range(1, 256));
  app.add_option("--seconds", seconds, "Seconds to measure each op");
  app.add_flag("--list-ops", list, "Only list the ops that have a CPU kernel");
  CLI11_PARSE(app, argc, argv);
  if (list) {
    for (const OpSchema* op : OpRegistry::Global().All()) {
      if (KernelRegistry::Global().Has(op->name, "CPU")) std::printf("%s\n", op->name.c_str());
    }
    return 0;
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".pb") continue;
    const std::string op = entry.path().stem().string();
    const StatusOr<double> us = Microseconds(entry.path(), threads, seconds);
    if (us.ok()) {
      absl::PrintF("{\"op\": \"%s\", \"us\": %.6g}\n", op, *us);
    } else {
      absl::PrintF("{\"op\": \"%s\", \"error\": %s}\n", op, Quoted(us.status().ToString()));
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) { return millrace::bench::Main(argc, argv); }
