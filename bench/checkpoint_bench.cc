// A model saved and restored through a session, beside plain writing and reading of the same bytes.
//
//   checkpoint_bench DIRECTORY [--mb=1024] [--repeats=3]
//
// Prints one JSON line for each repeat: seconds of each. Plain writing is write() of 4 MB at a time and fsync; plain reading
// is read() of 4 MB at a time into memory of the model's size that is used again each time. "cold" is with the files
// dropped from the page cache. Before each writing the page cache's memory is warmed: another file comes and goes.
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

// Forgets what the page cache has of a file that is on the disk.
void Drop(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  Require(fd >= 0, path.c_str());
  fdatasync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  close(fd);
}

class Model {
 public:
  Model(std::string prefix, int64_t mb) : prefix_(std::move(prefix)) {
    GraphBuilder b(&graph_);
    const int64_t floats = mb * (1 << 20) / kVariables / static_cast<int64_t>(sizeof(float));
    std::vector<Endpoint> handles, save;
    std::vector<std::string> names;
    std::vector<Node*> inits, assigns;
    for (int i = 0; i < kVariables; ++i) {
      names.push_back(absl::StrFormat("layer_%02d/kernel", i));
      handles.push_back(b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({floats})},
                                                 {"shared_name", names.back()}}, names.back()));
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

// Makes the memory that the page cache takes next a memory that was used a moment ago. A virtual machine gives free
// memory back to its host within seconds and gets it anew page by page, which takes four times as long as the
// writing itself and strikes whoever comes first.
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

void Main(const std::string& directory, int64_t mb, int repeats) {
  Model model(absl::StrCat(directory, "/millrace"), mb);
  const std::string plain = absl::StrCat(directory, "/plain"), warm = absl::StrCat(directory, "/warm");
  std::vector<char> memory(static_cast<size_t>(mb) << 20);
  for (int i = 0; i <= repeats; ++i) {
    unlink(plain.c_str());
    model.Remove();
    double plain_write, save;
    // Takes turns in who goes first.
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
    // The first time files and memory are new to the machine: that is not what is measured.
    if (i == 0) continue;
    absl::PrintF("{\"plain_write\": %.4f, \"save\": %.4f, \"plain_read\": %.4f, \"restore\": %.4f, "
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
  int64_t mb = 1024;
  int repeats = 3;
  app.add_option("directory", directory, "where the files go")->required();
  app.add_option("--mb", mb, "size of the model");
  app.add_option("--repeats", repeats);
  CLI11_PARSE(app, argc, argv);
  millrace::bench::Main(directory, mb, repeats);
  return 0;
}
