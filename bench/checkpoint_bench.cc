// Saves and restores a model through a session, and compares with plain writes and reads of the same bytes.
//
//   checkpoint_bench DIRECTORY [--megabytes=1024] [--repeats=3]
//
// Prints one JSON line with the seconds for each repeat. A plain write is write() of 4 MB at a time and fsync; a plain
// read is read() of 4 MB at a time into reused memory of the model's size. "cold" means that the files were dropped
// from the page cache. Before each write the memory of the page cache is warmed by writing and removing another file.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "millrace/base/file.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/io/bundle.h"
#include "millrace/session/session.h"

namespace millrace::bench {
namespace {

constexpr int kVariables = 64;
constexpr size_t kPiece = size_t{4} << 20;

void Require(const Status& status) {
  if (status.ok()) return;
  std::cerr << status << std::endl;
  std::exit(1);
}
void Require(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

template <typename Fn>
double Seconds(Fn&& fn) {
  const auto begin = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Drops a file that has been written to disk from the page cache.
void Drop(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  Require(fd >= 0, path.c_str());
  fdatasync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

class Model {
 public:
  Model(std::string prefix, int64_t megabytes) : prefix_(std::move(prefix)) {
    GraphBuilder b(&graph_);
    const int64_t floats = megabytes * (1 << 20) / kVariables / static_cast<int64_t>(sizeof(float));
    std::vector<Endpoint> handles, save;
    std::vector<std::string> names;
    std::vector<Node*> inits, assigns;
    for (int i = 0; i < kVariables; ++i) {
      names.push_back(absl::StrFormat("layer_%02d/kernel", i));
      handles.push_back(b.Op(
          "VarHandleOp", {},
          {{"dtype", DType::kFloat}, {"shape", PartialShape({floats})}, {"shared_name", names.back()}}, names.back()));
      const Endpoint shape = b.Ints({static_cast<int32_t>(floats)});
      const Endpoint value = b.Op("RandomUniform", {shape}, {{"dtype", DType::kFloat}});
      inits.push_back(b.AddNode("AssignVariableOp", {{handles.back(), value}}));
    }
    const Endpoint where = b.Const(Tensor::Scalar(prefix_));
    const Endpoint name_list = b.Const(Tensor::FromVector(names));
    const Endpoint slices = b.Const(Tensor::FromVector(std::vector<std::string>(kVariables)));
    save = {where, name_list, slices};
    for (const Endpoint& handle : handles) {
      save.push_back(b.Op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat}}));
      reads_.push_back(save.back().name());
    }
    b.AddNode("SaveV2", save, {}, "save");
    Node* const restored = b.AddNode("RestoreV2", {{where, name_list, slices}},
                                     {{"dtypes", std::vector<DType>(kVariables, DType::kFloat)}});
    for (int i = 0; i < kVariables && restored != nullptr; ++i) {
      assigns.push_back(b.AddNode("AssignVariableOp", {{handles[i], restored->output(i)}}));
    }
    b.control_inputs = inits;
    b.AddNode("NoOp", {}, {}, "init");
    b.control_inputs = assigns;
    b.AddNode("NoOp", {}, {}, "restore");
    Require(b.status());
    auto session = Session::Create();
    Require(session.status());
    session_ = *std::move(session);
    Require(session_->Extend(graph_));
    Require(session_->RunTargets({"init"}));
  }

  void Save() { Require(session_->RunTargets({"save"})); }
  void Restore() { Require(session_->RunTargets({"restore"})); }
  std::vector<Tensor> Values() {
    auto values = session_->Run(std::vector<Feed>{}, reads_);
    Require(values.status());
    return *std::move(values);
  }
  std::string data_path() const { return BundleDataPath(prefix_, 0, 1); }
  void Remove() {
    for (const std::string& path : {data_path(), BundleIndexPath(prefix_)}) unlink(path.c_str());
  }

 private:
  const std::string prefix_;
  Graph graph_;
  std::vector<std::string> reads_;
  std::unique_ptr<Session> session_;
};

void PlainWrite(const std::string& path, const std::vector<Tensor>& values) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  Require(fd >= 0, path.c_str());
  for (const Tensor& value : values) {
    const char* const bytes = static_cast<const char*>(value.raw_data());
    for (size_t at = 0; at < value.TotalBytes(); at += kPiece) {
      const size_t n = std::min(kPiece, value.TotalBytes() - at);
      Require(write(fd, bytes + at, n) == static_cast<ssize_t>(n), "write");
    }
  }
  Require(fsync(fd) == 0, "fsync");
  close(fd);
}

// Ensures that the page cache gets recently used memory next. A virtual machine returns free memory to its host within
// seconds and gets it back page by page, which takes four times as long as the write itself and hits whichever side
// comes first.
void WarmPageCache(const std::string& path, const std::vector<char>& memory) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  Require(fd >= 0, path.c_str());
  for (size_t at = 0; at < memory.size(); at += kPiece) {
    const size_t n = std::min(kPiece, memory.size() - at);
    Require(write(fd, memory.data() + at, n) == static_cast<ssize_t>(n), "write");
  }
  Require(fsync(fd) == 0, "fsync");
  close(fd);
  unlink(path.c_str());
}

void PlainRead(const std::string& path, std::vector<char>& memory) {
  const int fd = open(path.c_str(), O_RDONLY);
  Require(fd >= 0, path.c_str());
  const size_t size = memory.size();
  for (size_t at = 0; at < size;) {
    const ssize_t got = read(fd, memory.data() + at, std::min(kPiece, size - at));
    Require(got > 0, "read");
    at += static_cast<size_t>(got);
  }
  close(fd);
}

void Main(const std::string& directory, int64_t megabytes, int repeats) {
  Model model(absl::StrCat(directory, "/millrace"), megabytes);
  const std::string plain = absl::StrCat(directory, "/plain"), warm = absl::StrCat(directory, "/warm");
  std::vector<char> memory(static_cast<size_t>(megabytes) << 20);
  for (int i = 0; i <= repeats; ++i) {
    unlink(plain.c_str());
    model.Remove();
    double plain_write, save;
    // The sides take turns in going first.
    const auto write_plain = [&] {
      const std::vector<Tensor> values = model.Values();
      WarmPageCache(warm, memory);
      plain_write = Seconds([&] { PlainWrite(plain, values); });
    };
    if (i % 2 == 0) write_plain();
    WarmPageCache(warm, memory);
    save = Seconds([&] { model.Save(); });
    if (i % 2 == 1) write_plain();
    const double plain_read = Seconds([&] { PlainRead(plain, memory); });
    const double restore = Seconds([&] { model.Restore(); });
    Drop(plain);
    const double plain_cold = Seconds([&] { PlainRead(plain, memory); });
    Drop(model.data_path());
    const double restore_cold = Seconds([&] { model.Restore(); });
    // Warm-up, not measured: files and memory are new to the machine.
    if (i == 0) continue;
    absl::PrintF(
        "{\"plain_write\": %.4f, \"save\": %.4f, \"plain_read\": %.4f, \"restore\": %.4f, "
        "\"plain_read_cold\": %.4f, \"restore_cold\": %.4f}\n",
        plain_write, save, plain_read, restore, plain_cold, restore_cold);
    std::fflush(stdout);
  }
  unlink(plain.c_str());
  model.Remove();
}

}  // namespace
}  // namespace millrace::bench

int main(int argc, char** argv) {
  CLI::App app("Saves and restores a model, beside plain writing and reading of the same bytes.");
  std::string directory;
  int64_t megabytes = 1024;
  int repeats = 3;
  app.add_option("directory", directory, "Directory for the files")->required();
  app.add_option("--megabytes", megabytes, "Size of the model");
  app.add_option("--repeats", repeats);
  CLI11_PARSE(app, argc, argv);
  millrace::bench::Main(directory, megabytes, repeats);
  return 0;
}
