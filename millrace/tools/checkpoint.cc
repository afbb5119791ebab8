// millrace checkpoint: shows the contents of a checkpoint.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "millrace/tools/command.h"
#include "millrace/tools/tensor_text.h"
#include "millrace/train/checkpoint/checkpoint_reader.h"

namespace millrace {
namespace {

struct CheckpointFlags {
  std::string checkpoint;
  std::string tensor;
  int64_t max_values = 1000;
  bool verify = false;
};

std::string BytesText(double bytes) {
  for (const char* unit : {"bytes", "kB", "MB", "GB"}) {
    if (bytes < 1000 || std::string(unit) == "GB")
      return absl::StrFormat("%.*f %s", bytes < 10 && unit != std::string("bytes") ? 1 : 0, bytes, unit);
    bytes /= 1000;
  }
  return "";
}

int ShowCheckpoint(const CheckpointFlags& flags) {
  const StatusOr<std::string> prefix = FindCheckpoint(flags.checkpoint);
  if (!prefix.ok()) return Fail("checkpoint", prefix.status(), 1);
  if (!flags.tensor.empty()) {
    const StatusOr<Tensor> tensor = LoadVariable(*prefix, flags.tensor);
    if (!tensor.ok()) return Fail("checkpoint", tensor.status(), 1);
    std::cout << flags.tensor << "  " << DTypeName(tensor->dtype()) << tensor->shape().ToString() << "\n";
    PrintValues(*tensor, flags.max_values);
    return 0;
  }
  const StatusOr<std::vector<CheckpointVariable>> all = ListVariables(*prefix);
  if (!all.ok()) return Fail("checkpoint", all.status(), 1);
  size_t width = 0;
  double bytes = 0;
  for (const CheckpointVariable& variable : *all) {
    width = std::max(width, variable.name.size());
    if (IsPlain(variable.dtype))
      bytes += static_cast<double>(variable.shape.num_elements()) * static_cast<double>(SizeOf(variable.dtype));
  }
  std::cout << *prefix << ": " << all->size() << (all->size() == 1 ? " tensor, " : " tensors, ") << BytesText(bytes)
            << "\n";
  for (const CheckpointVariable& variable : *all) {
    if (flags.verify) {
      if (const StatusOr<Tensor> read = LoadVariable(*prefix, variable.name); !read.ok())
        return Fail("checkpoint", read.status(), 1);
    }
    std::cout << absl::StrFormat("  %-*s  %s%s%s\n", static_cast<int>(width), variable.name, DTypeName(variable.dtype),
                                 variable.shape.ToString(),
                                 variable.slices == 0 ? "" : absl::StrCat("  in ", variable.slices, " slices"));
  }
  return 0;
}

}  // namespace

std::function<int()> AddCheckpoint(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* checkpoint = app.add_subcommand(
      "checkpoint", "Lists the tensors of a checkpoint, Millrace's or TensorFlow's, or prints one of them");
  auto flags = std::make_shared<CheckpointFlags>();
  checkpoint
      ->add_option("checkpoint", flags->checkpoint,
                   "A prefix (train/model.ckpt-812), or a directory for its newest checkpoint")
      ->required();
  checkpoint->add_option("--tensor", flags->tensor, "Prints the values of this tensor instead");
  checkpoint->add_option("--max_values", flags->max_values, "The maximum number of values to print")
      ->capture_default_str();
  checkpoint->add_flag("--verify", flags->verify, "Reads the whole checkpoint and verifies its checksums");
  checkpoint->footer(
      "Example:\n"
      "  millrace checkpoint train --tensor global_step");
  *command = checkpoint;
  return [flags] { return ShowCheckpoint(*flags); };
}

}  // namespace millrace
