// Golden cases: graphs with feeds and TensorFlow's results. The format is described in testdata/README.md.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/proto/graph.pb.h"
#include "millrace/proto/master.pb.h"

namespace millrace::golden {

namespace pb = ::tensorflow;

// One line of an index.
struct Case {
  std::string name;
  std::string file;  // path of the case's files, without endings, below the folder
  std::string family;
  int steps = 1;
  double rtol = 0;
  double atol = 0;

  // For an error case: the step that must fail, and its error. error_step is 0 if no step may fail.
  int error_step = 0;
  int error_code = 0;
  std::string error_name;
  std::string error_fragment;
  bool may_fail_at_create = false;

  // For a gradient case.
  std::vector<std::string> ys;
  std::vector<std::string> xs;
  std::vector<std::string> grad_ys;
  std::vector<bool> sparse;
};

// A directory of cases, or an archive of one. Of an archive, the files that graphs read are unpacked into a temporary
// directory, which is removed at the end.
class CaseFolder {
 public:
  // `path` is a folder with an index.jsonl, or a .tar.xz of one.
  static StatusOr<std::unique_ptr<CaseFolder>> Open(const std::string& path);
  ~CaseFolder();

  const std::string& path() const { return path_; }
  const std::vector<Case>& cases() const { return cases_; }

  // Makes the folder the working directory, with an empty tmp/ in it, as cases with files require.
  Status EnterWithEmptyTmp() const;

  // Nodes of graphs that are read from now on ask for this device if they ask for none.
  void set_device(const std::string& device) { device_ = device; }
  StatusOr<pb::GraphDef> ReadGraph(const Case& c) const;
  // `step` counts from 1.
  StatusOr<pb::RunStepRequest> ReadRequest(const Case& c, int step) const;
  StatusOr<pb::RunStepResponse> ReadExpectation(const Case& c, int step) const;

 private:
  CaseFolder() = default;
  Status ReadIndex();
  // A file of a case, by its name below the folder.
  StatusOr<std::string> Read(const std::string& name) const;
  template <typename Message>
  StatusOr<Message> ReadMessage(const std::string& name) const;

  std::string path_;
  std::string device_;
  bool is_temporary_ = false;
  std::map<std::string, std::string> files_;  // of an archive, what is not unpacked
  std::vector<Case> cases_;
};

// The ops of `graph` and its functions that this library lacks, sorted.
std::vector<std::string> MissingOps(const pb::GraphDef& graph);

}  // namespace millrace::golden
