// ops_table: generates docs/ops.md from the registry, or checks that a file is up to date.
//
//   ops_table                    prints the table
//   ops_table --check FILE       exits with 1 when FILE is not that table
//
// Kernels for GPUs are in libmillrace_cuda.so. Where that was not built, no table is printed, and the check leaves out
// which ops have one.
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "millrace/device/cuda_devices.h"
#include "millrace/graph/op_schema.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The attrs of type with the types the schema allows, shortened where it is long.
std::string Types(const OpSchema& op) {
  std::vector<std::string> parts;
  for (const OpAttr& attr : op.attrs) {
    if (attr.type != "type" && attr.type != "list(type)") continue;
    std::vector<std::string> names;
    for (DType type : attr.allowed_types) names.push_back(DTypeName(type));
    parts.push_back(absl::StrCat(attr.name, ": ", names.empty() ? "any" : absl::StrJoin(names, " ")));
  }
  return absl::StrJoin(parts, "; ");
}

std::string Gradient(const OpSchema& op) {
  return op.gradient_fn != nullptr ? "yes" : op.not_differentiable ? "none" : "";
}

std::string Table() {
  std::map<std::string, std::vector<const OpSchema*>> families;
  int count = 0;
  for (const OpSchema* op : OpRegistry::Global().All()) {
    families[op->family].push_back(op);
    ++count;
  }
  std::ostringstream out;
  out << "# Ops\n\n"
      << count
      << " ops, by the folder of `millrace/ops` that has them. Written by `build/release/tests/ops_table > "
         "docs/ops.md`.\n\n"
      << "Types are those of the schema; a kernel that does not take one of them says so when the graph is placed. "
         "Gradient: `yes`, or\n"
      << "`none` where there is nothing to differentiate.\n";
  for (const auto& [family, ops] : families) {
    out << "\n## " << family << "\n\n| op | what it gives | types | gradient | devices |\n|---|---|---|---|---|\n";
    for (const OpSchema* op : ops) {
      const std::string summary = absl::StrReplaceAll(op->summary, {{"|", "\\|"}});
      out << "| `" << op->name << "` | " << summary << " | " << Types(*op) << " | " << Gradient(*op) << " | "
          << absl::StrJoin(KernelRegistry::Global().DevicesFor(op->name), ", ") << " |\n";
    }
  }
  return out.str();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::CudaDeviceCount();  // opens the library, which registers its kernels
  const bool has_gpu_kernels = millrace::KernelRegistry::Global().Has("MatMul", "GPU");
  std::string table = millrace::Table();
  if (argc == 1) {
    if (!has_gpu_kernels) {
      std::cerr << "ops_table: libmillrace_cuda.so is not built, so its kernels would be missing\n";
      return 1;
    }
    std::cout << table;
    return 0;
  }
  if (argc != 3 || std::string(argv[1]) != "--check") {
    std::cerr << "usage: ops_table [--check FILE]\n";
    return 2;
  }
  std::ifstream in(argv[2]);
  std::stringstream content;
  content << in.rdbuf();
  std::string expected = content.str();
  if (!has_gpu_kernels) {
    for (std::string* text : {&table, &expected}) *text = absl::StrReplaceAll(*text, {{", GPU |", " |"}});
  }
  if (in && expected == table) return 0;
  std::cerr << argv[2] << " is not what the registry says. Write it again: build/release/tests/ops_table > " << argv[2]
            << "\n";
  return 1;
}
