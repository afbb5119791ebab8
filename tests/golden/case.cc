#include "tests/golden/case.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "millrace/graph/op_schema.h"
#include "nlohmann/json.hpp"
#include "tests/golden/archive.h"

namespace millrace::golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr char kIndex[] = "index.jsonl";

// Whether only the runner reads a file, not a graph.
bool IsOfCases(const std::string& name) {
  if (name == kIndex) return true;
  return absl::EndsWith(name, ".pb") && (absl::StrContains(name, ".graph.") || absl::StrContains(name, ".run.") ||
                                         absl::StrContains(name, ".expect."));
}

Status WriteFile(const fs::path& path, const std::string& contents) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream out(path, std::ios::binary);
  out.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  out.close();
  if (!out) return Internal("cannot write ", path.string());
  return absl::OkStatus();
}

std::vector<std::string> Strings(const Json& line, const char* key) {
  return line.value(key, std::vector<std::string>());
}

Case FromJson(const Json& line) {
  Case c;
  c.name = line.at("name");
  c.file = line.at("file");
  c.family = line.at("family");
  c.steps = line.value("steps", 1);
  c.rtol = line.value("rtol", 0.0);
  c.atol = line.value("atol", 0.0);
  c.error_step = line.value("error_step", 0);
  c.error_code = line.value("error_code", 0);
  c.error_name = line.value("error_name", "");
  c.error_fragment = line.value("error_fragment", "");
  c.may_fail_at_create = line.value("stage", "") == "create";
  c.ys = Strings(line, "ys");
  c.xs = Strings(line, "xs");
  c.grad_ys = Strings(line, "grad_ys");
  c.sparse = line.value("sparse", std::vector<bool>());
  return c;
}

std::string StepFile(const Case& c, const char* kind, int step) {
  const std::string number = c.steps > 1 ? absl::StrCat(".", step) : "";
  return absl::StrCat(c.file, ".", kind, number, ".pb");
}

}  // namespace

StatusOr<std::unique_ptr<CaseFolder>> CaseFolder::Open(const std::string& path) {
  std::error_code error;
  const std::string absolute = fs::absolute(path, error).string();
  std::unique_ptr<CaseFolder> folder(new CaseFolder);
  if (fs::is_directory(absolute, error)) {
    folder->path_ = absolute;
  } else if (fs::is_regular_file(absolute, error)) {
    std::string name = (fs::temp_directory_path() / "millrace_cases_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return Internal("cannot make a folder under ", name);
    folder->path_ = name;
    folder->is_temporary_ = true;
    MR_ASSIGN_OR_RETURN(folder->files_, ReadArchive(absolute));
    for (auto file = folder->files_.begin(); file != folder->files_.end();) {
      if (IsOfCases(file->first)) {
        ++file;
        continue;
      }
      MR_RETURN_IF_ERROR(WriteFile(fs::path(name) / file->first, file->second));
      file = folder->files_.erase(file);
    }
  } else {
    return NotFound("no folder or archive of cases at ", path);
  }
  MR_RETURN_IF_ERROR(folder->ReadIndex());
  return folder;
}

CaseFolder::~CaseFolder() {
  std::error_code ignored;
  if (is_temporary_) fs::remove_all(path_, ignored);
}

StatusOr<std::string> CaseFolder::Read(const std::string& name) const {
  if (is_temporary_) {
    const auto file = files_.find(name);
    if (file == files_.end()) return NotFound("the archive has no ", name);
    return file->second;
  }
  std::ifstream in(absl::StrCat(path_, "/", name), std::ios::binary);
  if (!in) return NotFound("cannot read ", path_, "/", name);
  std::stringstream all;
  all << in.rdbuf();
  return std::move(all).str();
}

template <typename Message>
StatusOr<Message> CaseFolder::ReadMessage(const std::string& name) const {
  MR_ASSIGN_OR_RETURN(const std::string bytes, Read(name));
  Message message;
  if (!message.ParseFromString(bytes)) return DataLoss(name, " is not a ", message.GetTypeName());
  return message;
}

Status CaseFolder::ReadIndex() {
  const std::string file = kIndex;
  MR_ASSIGN_OR_RETURN(std::string all, Read(file));
  std::stringstream in(std::move(all));
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    if (text.empty()) continue;
    try {
      cases_.push_back(FromJson(Json::parse(text)));
    } catch (const Json::exception& e) {
      return DataLoss(file, ":", number, ": ", e.what());
    }
  }
  if (cases_.empty()) return DataLoss(file, " lists no case");
  return absl::OkStatus();
}

Status CaseFolder::EnterWithEmptyTmp() const {
  std::error_code error;
  fs::current_path(path_, error);
  if (!error) fs::remove_all("tmp", error);
  if (!error) fs::create_directory("tmp", error);
  if (error) return Internal("cannot make an empty tmp/ in ", path_, ": ", error.message());
  return absl::OkStatus();
}

StatusOr<pb::GraphDef> CaseFolder::ReadGraph(const Case& c) const {
  StatusOr<pb::GraphDef> graph = ReadMessage<pb::GraphDef>(c.file + ".graph.pb");
  if (!graph.ok() || device_.empty()) return graph;
  for (pb::NodeDef& node : *graph->mutable_node()) {
    if (node.device().empty()) node.set_device(device_);
  }
  return graph;
}

StatusOr<pb::RunStepRequest> CaseFolder::ReadRequest(const Case& c, int step) const {
  return ReadMessage<pb::RunStepRequest>(StepFile(c, "run", step));
}

StatusOr<pb::RunStepResponse> CaseFolder::ReadExpectation(const Case& c, int step) const {
  return ReadMessage<pb::RunStepResponse>(StepFile(c, "expect", step));
}

std::vector<std::string> MissingOps(const pb::GraphDef& graph) {
  std::set<std::string> functions;
  std::set<std::string> ops;
  for (const pb::NodeDef& node : graph.node()) ops.insert(node.op());
  for (const pb::FunctionDef& function : graph.library().function()) {
    functions.insert(function.signature().name());
    for (const pb::NodeDef& node : function.node_def()) ops.insert(node.op());
  }
  std::vector<std::string> missing;
  for (const std::string& op : ops) {
    if (functions.count(op) == 0 && OpRegistry::Global().FindOrNull(op) == nullptr) missing.push_back(op);
  }
  return missing;
}

}  // namespace millrace::golden
