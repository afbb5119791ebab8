#include "tests/golden/case.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "millrace/graph/op_schema.h"
#include "nlohmann/json.hpp"

extern char** environ;

namespace millrace::golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Status Unpack(const std::string& archive, const std::string& folder) {
  const char* argv[] = {"tar", "xJf", archive.c_str(), "-C", folder.c_str(), nullptr};
  pid_t pid = 0;
  if (posix_spawnp(&pid, "tar", nullptr, nullptr, const_cast<char**>(argv), environ) != 0) {
    return Internal("cannot start tar");
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || status != 0) return DataLoss("tar could not unpack ", archive);
  return absl::OkStatus();
}

template <typename Message>
StatusOr<Message> ReadMessage(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read ", path);
  Message message;
  if (!message.ParseFromIstream(&in)) return DataLoss(path, " is not a ", message.GetTypeName());
  return message;
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

std::string StepFile(const std::string& folder, const Case& c, const char* kind, int step) {
  const std::string number = c.steps > 1 ? absl::StrCat(".", step) : "";
  return absl::StrCat(folder, "/", c.file, ".", kind, number, ".pb");
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
    MR_RETURN_IF_ERROR(Unpack(absolute, name));
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

Status CaseFolder::ReadIndex() {
  const std::string file = path_ + "/index.jsonl";
  std::ifstream in(file);
  if (!in) return NotFound("cannot read ", file);
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
  StatusOr<pb::GraphDef> graph = ReadMessage<pb::GraphDef>(absl::StrCat(path_, "/", c.file, ".graph.pb"));
  if (!graph.ok() || device_.empty()) return graph;
  for (pb::NodeDef& node : *graph->mutable_node()) {
    if (node.device().empty()) node.set_device(device_);
  }
  return graph;
}

StatusOr<pb::RunStepRequest> CaseFolder::ReadRequest(const Case& c, int step) const {
  return ReadMessage<pb::RunStepRequest>(StepFile(path_, c, "run", step));
}

StatusOr<pb::RunStepResponse> CaseFolder::ReadExpectation(const Case& c, int step) const {
  return ReadMessage<pb::RunStepResponse>(StepFile(path_, c, "expect", step));
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
