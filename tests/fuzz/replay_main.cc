// Runs a fuzzer's target without libFuzzer: over each file of the folders given, as it is and with faults in it.
//
// The faults come from a fixed seed, so that a failure repeats; the input that crashes it is left in a file.
// Coverage-guided fuzzing is in the preset `asan` (tests/fuzz/run).
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <tuple>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kFaultsPerFile = 20;
constexpr size_t kMaxSize = 65536;

const char* kept = nullptr;            // the file for the input that crashes
const std::string* at_work = nullptr;  // that input

void OnCrash(int number) {
  const int file = open(kept, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0) std::ignore = write(file, at_work->data(), at_work->size());
  signal(number, SIG_DFL);
  raise(number);
}

void Run(const std::string& input) {
  at_work = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

// A byte changed, a piece left out, doubled or overwritten with another, or the end cut off.
std::string WithFault(std::string input, std::mt19937& random) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : random() % n; };
  const size_t at = below(input.size()), size = below(std::min<size_t>(input.size() - at, 64) + 1);
  switch (random() % 5) {
    case 0:
      if (!input.empty()) input[at] = static_cast<char>(random());
      break;
    case 1:
      input.erase(at, size);
      break;
    case 2:
      input.insert(at, input.substr(at, size));
      break;
    case 3:
      input.replace(at, size, input.substr(below(input.size()), size));
      break;
    default:
      input.resize(at);
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "Usage: %s KEPT [FOLDER...]\n", argv[0]);
    return 2;
  }
  kept = argv[1];
  // A sanitizer or a time limit (SIGTERM) ends it too.
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM}) signal(number, OnCrash);
  std::mt19937 random(1);
  int runs = 0;
  const auto run = [&](const std::string& input) {
    Run(input);
    std::string faulty = input;
    for (int i = 0; i < kFaultsPerFile; ++i) {
      faulty = WithFault(i % 4 == 0 ? input : std::move(faulty), random);
      Run(faulty);
    }
    runs += kFaultsPerFile + 1;
  };
  run("");
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (!entry.is_regular_file() || entry.file_size() > kMaxSize) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      run(std::string(std::istreambuf_iterator<char>(file), {}));
    }
  }
  std::printf("%d inputs\n", runs);
  return 0;
}
