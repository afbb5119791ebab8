#include "bench/input.h"

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_format.h"
#include "bench/measure.h"
#include "millrace/data/cifar.h"
#include "millrace/data/cifar_batches.h"

namespace millrace::bench {
namespace {

// A directory of CIFAR-10's binary files with random pixels, like that of bench/peers/common.py.
class CifarFiles {
 public:
  CifarFiles() {
    std::string path = (std::filesystem::temp_directory_path() / "cifar.XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) Check(Internal("there is no temporary directory at ", path));
    path_ = path;
    std::mt19937 random(1);
    std::string records(kRecord * 10000, '\0');
    for (const char* name :
         {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      for (char& byte : records) byte = static_cast<char>(random());
      for (size_t at = 0; at < records.size(); at += kRecord) records[at] = static_cast<char>(random() % 10);
      std::ofstream(path_ / absl::StrCat(name, ".bin"), std::ios::binary) << records;
    }
  }
  ~CifarFiles() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  static constexpr size_t kRecord = 3073;
  std::filesystem::path path_;
};

}  // namespace

void CifarInput(const Flags& flags) {
  constexpr int kBatch = 128;
  const CifarFiles files;
  const auto begin = std::chrono::steady_clock::now();
  const Cifar10 data = Check(LoadCifar10(files.path()));
  const std::chrono::duration<double> read = std::chrono::steady_clock::now() - begin;
  const Dataset batches =
      Check(CifarTrainingBatches(data.train, {.batch_size = kBatch, .threads = flags.threads})).Prefetch(2);
  const std::unique_ptr<DatasetIterator> it = Check(batches.MakeIterator());
  std::vector<Tensor> batch;
  const double rate = kBatch * Rate(flags.seconds, [&] { Check(it->Next(&batch)); });
  Emit(flags, "cifar_input", "images/s", rate, absl::StrFormat(", \"read_s\": %.3g", read.count()));
}

}  // namespace millrace::bench
