// Tables filled from text files.
#include "millrace/base/file.h"
#include "tests/ops/data_flow_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

constexpr int kWholeLine = -2, kLineNumber = -1;

class TableFileTest : public DataFlowTest {
 protected:
  Endpoint File(const std::string& text) {
    auto directory = TempDirectory::Make("table_file_test");
    EXPECT_TRUE(directory.ok()) << directory.status();
    directories_.push_back(*std::move(directory));
    const std::string path = directories_.back().path() + "/lines.txt";
    auto file = FileSystem::Posix()->OpenWritable(path, FileSystem::Mode::kTruncate);
    EXPECT_TRUE(file.ok() && (*file)->Append(text).ok() && (*file)->Close().ok());
    return b_.Scalar<std::string>(path);
  }
  Endpoint Table(DType key, DType value) {
    return {Handle("HashTableV2", {{"key_dtype", key}, {"value_dtype", value}}), 0};
  }
  Node* Fill(Endpoint table, Endpoint file, int key, int value, AttrList more = {}) {
    AttrList attrs = {{"key_index", key}, {"value_index", value}};
    for (auto& a : more) attrs.push_back(std::move(a));
    return b_.AddNode("InitializeTableFromTextFileV2", {table, file}, std::move(attrs));
  }
  Node* Find(Endpoint table, const std::vector<std::string>& keys) {
    return b_.AddNode("LookupTableFindV2", {table, b_.Const(Tensor::FromVector(keys)), b_.Scalar<int64_t>(-1)});
  }

  std::vector<TempDirectory> directories_;
};

TEST_F(TableFileTest, LinesAreKeysAndTheirNumbersValues) {
  const Endpoint table = Table(DType::kString, DType::kInt64);
  Node* const fill = Fill(table, File("a\nb c\r\nd"), kWholeLine, kLineNumber, {{"offset", 10}});
  Node* const find = Find(table, {"a", "b c", "d", "e"});
  Open();
  ASSERT_TRUE(Do(fill).ok());
  EXPECT_THAT(Values<int64_t>(find), ElementsAre(10, 11, 12, -1));
}

TEST_F(TableFileTest, ColumnsAreKeysAndValues) {
  const Endpoint table = Table(DType::kString, DType::kInt64);
  Node* const fill = Fill(table, File("1,a,x\n2,b,y\n"), 1, 0, {{"delimiter", ","}, {"vocab_size", 2}});
  Node* const find = Find(table, {"a", "b"});
  Open();
  ASSERT_TRUE(Do(fill).ok());
  EXPECT_THAT(Values<int64_t>(find), ElementsAre(1, 2));
}

TEST_F(TableFileTest, ABadFileIsNamedAndLeavesTheTableEmpty) {
  const Endpoint table = Table(DType::kString, DType::kInt64);
  Node* const few = Fill(table, File("a\n"), 0, 1);
  Node* const no_number = Fill(table, File("a\tq\n"), 0, 1);
  Node* const blank = Fill(table, File("a\n\nb\n"), kWholeLine, kLineNumber);
  Node* const small = Fill(table, File("a\n"), kWholeLine, kLineNumber, {{"vocab_size", 3}});
  Node* const twice = Fill(table, File("a\na\n"), kWholeLine, kLineNumber);
  Node* const missing = Fill(table, b_.Scalar<std::string>("/no/such/file"), kWholeLine, kLineNumber);
  Node* const wrong = Fill(Table(DType::kString, DType::kString), File("a\n"), kWholeLine, kLineNumber);
  Node* const find = Find(table, {"a"});
  Open();
  ExpectError(Do(few), absl::StatusCode::kInvalidArgument, "expected at least 2 got 1");
  ExpectError(Do(no_number), absl::StatusCode::kInvalidArgument, "Field q in line 0 is not a valid int64");
  ExpectError(Do(blank), absl::StatusCode::kInvalidArgument, "empty line found");
  ExpectError(Do(small), absl::StatusCode::kInvalidArgument, "expected 3 but got 1");
  ExpectError(Do(twice), absl::StatusCode::kFailedPrecondition, "different value for same key");
  ExpectError(Do(missing), absl::StatusCode::kNotFound, "/no/such/file");
  ExpectError(Do(wrong), absl::StatusCode::kInvalidArgument, "requires table value dtype of int64, got string");
  ExpectError(Get(find).status(), absl::StatusCode::kFailedPrecondition, "Table not initialized");
}

}  // namespace
}  // namespace millrace
