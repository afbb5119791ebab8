// Checkpoint ops, file ops and readers beyond what the golden cases show.
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/match.h"
#include "millrace/base/crc32c.h"
#include "millrace/io/bundle.h"
#include "millrace/io/record.h"
#include "millrace/runtime/wait_registry.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using absl::StatusCode;
using Strings = std::vector<std::string>;

class IoOpsTest : public OpSessionTest {
 protected:
  std::string Path(absl::string_view name) const { return dir_.File(name); }
  void WriteBytes(absl::string_view name, absl::string_view bytes) {
    ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), Path(name), bytes).ok());
  }
  Endpoint Text(const std::string& text) { return b_.Const(Tensor::Scalar(text)); }
  Endpoint Texts(const Strings& texts) { return b_.Const(Tensor::FromVector(texts)); }
  Node* Save(const std::string& prefix, const Strings& names, const Strings& slices, const std::vector<Tensor>& tensors) {
    std::vector<Endpoint> inputs = {Text(prefix), Texts(names), Texts(slices)};
    for (const Tensor& t : tensors) inputs.push_back(b_.Const(t));
    return b_.Op("SaveV2", inputs).node;
  }
  Endpoint Restore(const std::string& prefix, const std::string& name, const std::string& slice, DType dtype) {
    return b_.Op("RestoreV2", {Text(prefix), Texts({name}), Texts({slice})},
                 {{"dtypes", std::vector<DType>{dtype}}});
  }
  Status FetchStatus(Endpoint e) { return Fetch({e}).status(); }

  TempDirectory dir_ = TempDirectory::Make("io_ops_test").value();
};

TEST_F(IoOpsTest, PrintNothing) {}

}  // namespace
}  // namespace millrace
