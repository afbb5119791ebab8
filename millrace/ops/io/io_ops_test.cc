// Checkpoint ops, file ops and readers beyond what the golden cases show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "absl/strings/match.h"
#include "millrace/io/bundle.h"
#include "millrace/io/record.h"
#include "millrace/runtime/wait_registry.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using Strings = std::vector<std::string>;

class IoOpsTest : public OpSessionTest {
 protected:
  std::string Path(absl::string_view name) const { return dir_.File(name); }
  void WriteBytes(absl::string_view name, absl::string_view bytes) {
    ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), Path(name), bytes).ok());
  }
  Endpoint Text(const std::string& text) { return b_.Const(Tensor::Scalar(text)); }
  Endpoint Texts(const Strings& texts) { return b_.Const(Tensor::FromVector(texts)); }
  Node* Save(const std::string& prefix, const Strings& names, const Strings& slices,
             const std::vector<Tensor>& tensors) {
    std::vector<Endpoint> inputs = {Text(prefix), Texts(names), Texts(slices)};
    for (const Tensor& t : tensors) inputs.push_back(b_.Const(t));
    return b_.AddNode("SaveV2", inputs);
  }
  Endpoint Restore(const std::string& prefix, const std::string& name, const std::string& slice, DType dtype) {
    return b_.Op("RestoreV2", {Text(prefix), Texts({name}), Texts({slice})}, {{"dtypes", std::vector<DType>{dtype}}});
  }
  StatusCode CodeOf(Endpoint e) { return Fetch({e}).status().code(); }
  StatusCode CodeOf(Node* node) { return Run(node).code(); }

  // A queue of these names, which is closed, and a reader.
  void MakeReader(const std::string& op, const Strings& names, AttrList attrs = {}, bool close = true) {
    const bool v2 = absl::EndsWith(op, "V2");
    suffix_ = v2 ? "V2" : "";
    queue_ = b_.Op("FIFOQueue" + suffix_, {},
                   {{"component_types", std::vector<DType>{DType::kString}}, {"capacity", int64_t{100}}});
    reader_ = b_.Op(op, {}, std::move(attrs));
    if (!names.empty()) {
      ASSERT_TRUE(Run(b_.AddNode("QueueEnqueueMany" + suffix_, {{queue_, Texts(names)}})).ok());
    }
    if (close) {
      ASSERT_TRUE(Run(b_.AddNode("QueueClose" + suffix_, {{queue_}})).ok());
    }
    read_ = b_.AddNode("ReaderRead" + suffix_, {{reader_, queue_}});
  }
  // "key=value", or the code of an error.
  std::string Next() {
    const auto got = Fetch({read_->output(0), read_->output(1)});
    if (!got.ok()) return absl::StatusCodeToString(got.status().code());
    return absl::StrCat((*got)[0].scalar<std::string>(), "=", (*got)[1].scalar<std::string>());
  }
  std::string Ask(const std::string& op) {
    const auto got = Fetch({b_.Op(op + suffix_, {reader_})});
    if (!got.ok()) return absl::StatusCodeToString(got.status().code());
    return (*got)[0].dtype() == DType::kString ? (*got)[0].scalar<std::string>()
                                               : absl::StrCat((*got)[0].scalar<int64_t>());
  }

  TempDirectory dir_ = TempDirectory::Make("io_ops_test").value();
  std::string suffix_;
  Endpoint queue_, reader_;
  Node* read_ = nullptr;
};

const Tensor kThreeByTwo = Tensor::Of<float>({3, 2}, {0, 1, 2, 3, 4, 5});

TEST_F(IoOpsTest, WrongInputsOfSaveHaveTensorFlowsCodes) {
  const std::string p = Path("x");
  const Tensor two = Tensor::Of<float>({1, 2});
  EXPECT_EQ(CodeOf(Save(p, {"a", "b"}, {""}, {two})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Save(p, {"a"}, {"", ""}, {two})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Save(p, {"a"}, {"foo"}, {two})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Save(p, {"a"}, {"1 0,2"}, {two})), StatusCode::kInternal);
  EXPECT_EQ(CodeOf(Save(p, {"a"}, {"3 0,3"}, {two})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Save(p, {"a"}, {"-3 0,2"}, {two})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Save(p, {"a", "a"}, {"", ""}, {two, two})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Save(p, {"a", "a"}, {"4 0,2", "5 2,2"}, {two, two})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Save(p, {""}, {""}, {two})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Save(Path("no/such/x"), {"a"}, {""}, {two})), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(Save("gs://bucket/x", {"a"}, {""}, {two})), StatusCode::kUnimplemented);
  EXPECT_TRUE(FileSystem::Posix()->List(dir_.path()).value().empty()) << "what failed left something";
  EXPECT_TRUE(Run(Save("file://" + p, {"a"}, {""}, {two})).ok());
  EXPECT_TRUE(FileSystem::Posix()->Exists(p + ".index").ok());
}

TEST_F(IoOpsTest, WrongInputsOfRestoreHaveTensorFlowsCodes) {
  const std::string p = Path("x");
  ASSERT_TRUE(Run(Save(p, {"a", "part"}, {"", "4 0,2"}, {kThreeByTwo, Tensor::Of<float>({1, 2})})).ok());
  const auto code = [&](const std::string& name, const std::string& slice, DType dtype = DType::kFloat) {
    return CodeOf(Restore(p, name, slice, dtype));
  };
  EXPECT_EQ(code("a", ""), StatusCode::kOk);
  EXPECT_EQ(code("a", "3 2 1,2:-"), StatusCode::kOk);
  EXPECT_EQ(code("a", "4 2 1,2:-"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("a", "6 0,2"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("a", "", DType::kInt32), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("none", ""), StatusCode::kNotFound);
  EXPECT_EQ(code("", ""), StatusCode::kNotFound);
  EXPECT_EQ(code("part", ""), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("part", "4 1,1"), StatusCode::kOk);
  EXPECT_EQ(code("part", "4 1,2"), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Restore(Path("none"), "a", "", DType::kFloat)), StatusCode::kNotFound);
  WriteBytes("junk.index", "this is no table, whatever its name may be; it is long enough to be one");
  EXPECT_EQ(CodeOf(Restore(Path("junk"), "a", "", DType::kFloat)), StatusCode::kDataLoss);
  EXPECT_THAT(Values<float>(Restore(p, "a", "3 2 -:1,1", DType::kFloat)), ElementsAre(1, 3, 5));
}

TEST_F(IoOpsTest, CheckpointsOfTheFirstFormatAreReadAsTensorFlowWroteThem) {
  const std::string p = absl::StrCat(MILLRACE_TESTDATA, "/checkpoints/first_format");
  EXPECT_THAT(Values<float>(Restore(p, "float", "", DType::kFloat)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Values<float>(Restore(p, "sliced", "", DType::kFloat)), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Values<float>(Restore(p, "sliced", "3 2 1,2:1,1", DType::kFloat)), ElementsAre(4, 6));
  EXPECT_THAT(Values<std::string>(Restore(p, "string", "", DType::kString)), ElementsAre("x", "yy"));
  EXPECT_THAT(Values<int16_t>(Restore(p, "int16", "", DType::kInt16)), ElementsAre(-300));
  EXPECT_THAT(Values<std::complex<double>>(Restore(p, "complex128", "", DType::kComplex128)),
              ElementsAre(std::complex<double>(1, -2)));
  const Endpoint halves = b_.Op("Restore", {Text(p), Text("half")}, {{"dt", DType::kHalf}});
  EXPECT_THAT(Values<half>(halves), ElementsAre(half(1.5f), half(-2.f)));
  EXPECT_EQ(CodeOf(b_.Op("Restore", {Text(p), Text("none")}, {{"dt", DType::kFloat}})), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(b_.Op("Restore", {Text(p), Text("float")}, {{"dt", DType::kInt32}})), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(b_.Op("Restore", {Text(Path("no?")), Text("float")}, {{"dt", DType::kFloat}})),
            StatusCode::kNotFound);
}

TEST_F(IoOpsTest, TheFirstFormatIsWrittenWithTensorFlowsBytes) {
  const std::string good = absl::StrCat(MILLRACE_TESTDATA, "/checkpoints/first_format");
  const std::vector<std::pair<std::string, DType>> whole = {
      {"float", DType::kFloat},         {"scalar", DType::kInt32},
      {"string", DType::kString},       {"int8", DType::kInt8},
      {"bool", DType::kBool},           {"empty", DType::kFloat},
      {"complex64", DType::kComplex64}, {"half", DType::kHalf},
      {"double", DType::kDouble},       {"int64", DType::kInt64},
      {"uint8", DType::kUInt8},         {"uint16", DType::kUInt16},
      {"int16", DType::kInt16},         {"complex128", DType::kComplex128}};
  std::vector<Endpoint> tensors;
  Strings names, slices;
  for (const auto& [name, dtype] : whole) {
    names.push_back(name);
    slices.push_back("");
    tensors.push_back(Restore(good, name, "", dtype));
  }
  for (const char* slice : {"3 2 0,2:-", "3 2 2,1:-"}) {
    names.push_back("sliced");
    slices.push_back(slice);
    tensors.push_back(Restore(good, "sliced", slice, DType::kFloat));
  }
  std::vector<Endpoint> inputs = {Text(Path("copy")), Texts(names), Texts(slices)};
  inputs.insert(inputs.end(), tensors.begin(), tensors.end());
  ASSERT_TRUE(Run(b_.AddNode("SaveSlices", inputs)).ok());
  EXPECT_EQ(ReadWholeFile(FileSystem::Posix(), Path("copy")).value(), ReadWholeFile(FileSystem::Posix(), good).value());
  EXPECT_EQ(CodeOf(b_.AddNode("Save", {{Text(Path("v1")), Texts({"a"}), b_.Const(Tensor::Scalar(bfloat16(1.f)))}})),
            StatusCode::kUnimplemented);
}

TEST_F(IoOpsTest, AFileIsReadAnewInEveryStep) {
  WriteBytes("f", "one");
  const Endpoint read = b_.Op("ReadFile", {Text(Path("f"))});
  EXPECT_THAT(Values<std::string>(read), ElementsAre("one"));
  WriteBytes("f", "two");
  EXPECT_THAT(Values<std::string>(read), ElementsAre("two"));
  EXPECT_EQ(CodeOf(b_.Op("ReadFile", {Text(dir_.path())})), StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(b_.Op("ReadFile", {Text(Path("none"))})), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(b_.AddNode("WriteFile", {{Text(Path("f/below")), Text("x")}})), StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(b_.AddNode("WriteFile", {{Text(dir_.path()), Text("x")}})), StatusCode::kFailedPrecondition);
}

TEST_F(IoOpsTest, ASessionWithRootsLeavesNoOtherFileAlone) {
  WriteBytes("secret", "x");
  ASSERT_TRUE(FileSystem::Posix()->MakeDirectories(Path("root")).ok());
  session_ = Session::Create({.file_roots = {Path("root")}}).value();
  const Tensor two = Tensor::Of<float>({1, 2});
  EXPECT_EQ(CodeOf(b_.Op("ReadFile", {Text(Path("secret"))})), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(b_.Op("MatchingFiles", {Text(Path("*"))})), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(b_.AddNode("WriteFile", {{Text(Path("new/f")), Text("x")}})), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(Save(Path("model"), {"a"}, {""}, {two})), StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf(Restore(Path("root/../model"), "a", "", DType::kFloat)), StatusCode::kPermissionDenied);
  EXPECT_TRUE(Run(Save(Path("root/model"), {"a"}, {""}, {two})).ok());
  EXPECT_THAT(Values<float>(Restore(Path("root/model"), "a", "", DType::kFloat)), ElementsAre(1, 2));
  const Status moved = Run(b_.AddNode("MergeV2Checkpoints", {{Texts({Path("root/model")}), Text(Path("out"))}}));
  EXPECT_EQ(moved.code(), StatusCode::kPermissionDenied) << moved;
  EXPECT_TRUE(absl::StrContains(moved.message(), Path("root"))) << moved;
  MakeReader("WholeFileReaderV2", {Path("secret")});
  EXPECT_EQ(Next(), "PERMISSION_DENIED");
}

TEST_F(IoOpsTest, LinesAreReadFileByFileAndCounted) {
  WriteBytes("a", "one\ntwo\r\n\nlast");
  WriteBytes("b", "");
  WriteBytes("c", "x\n");
  for (const char* op : {"TextLineReader", "TextLineReaderV2"}) {
    MakeReader(op, {Path("a"), Path("b"), Path("c")});
    EXPECT_EQ(Next(), Path("a:1=one"));
    EXPECT_EQ(Next(), Path("a:2=two"));
    EXPECT_EQ(Next(), Path("a:3="));
    EXPECT_EQ(Next(), Path("a:4=last"));
    EXPECT_EQ(Ask("ReaderNumWorkUnitsCompleted"), "0");
    EXPECT_EQ(Next(), Path("c:1=x"));
    EXPECT_EQ(Ask("ReaderNumRecordsProduced"), "5");
    EXPECT_EQ(Ask("ReaderNumWorkUnitsCompleted"), "2");
    EXPECT_EQ(Next(), "OUT_OF_RANGE");
    EXPECT_EQ(Ask("ReaderNumWorkUnitsCompleted"), "3");
    EXPECT_EQ(Ask("ReaderSerializeState"), "UNIMPLEMENTED");
    ASSERT_TRUE(Run(b_.AddNode("ReaderReset" + suffix_, {{reader_}})).ok());
    EXPECT_EQ(Ask("ReaderNumRecordsProduced"), "0");
  }
}

TEST_F(IoOpsTest, AMissingFileIsLeftOutAndADamagedOneIsNot) {
  {
    const auto writer = RecordWriter::Create(FileSystem::Posix(), Path("good"), Compression::kGzip).value();
    for (const char* record : {"abc", "", "xyz"}) ASSERT_TRUE(writer->Write(record).ok());
    ASSERT_TRUE(writer->Close().ok());
  }
  const std::string good = ReadWholeFile(FileSystem::Posix(), Path("good")).value();
  WriteBytes("bad", good.substr(0, good.size() - 12));
  MakeReader("TFRecordReaderV2", {Path("none"), Path("good"), Path("bad"), Path("good")},
             {{"compression_type", "GZIP"}});
  EXPECT_EQ(Next(), "NOT_FOUND");
  EXPECT_EQ(Next(), Path("good:0=abc"));
  EXPECT_EQ(Next(), Path("good:19="));
  EXPECT_EQ(Next(), Path("good:35=xyz"));
  EXPECT_EQ(Next(), Path("bad:0=abc"));
  EXPECT_EQ(Next(), Path("bad:19="));
  EXPECT_EQ(Next(), "DATA_LOSS");
  EXPECT_EQ(Next(), "DATA_LOSS");
  EXPECT_EQ(Ask("ReaderNumRecordsProduced"), "5");
}

TEST_F(IoOpsTest, RecordsOfOneLengthHopAndLeaveTheFooterOut) {
  WriteBytes("f", "HHabcdefghiF");
  const auto all = [&](AttrList attrs) {
    attrs.insert(attrs.end(),
                 {{"record_bytes", int64_t{3}}, {"header_bytes", int64_t{2}}, {"footer_bytes", int64_t{1}}});
    MakeReader("FixedLengthRecordReaderV2", {Path("f")}, attrs);
    std::string values;
    for (std::string next = Next(); next != "OUT_OF_RANGE"; next = Next()) {
      absl::StrAppend(&values, next.substr(dir_.path().size() + 2), " ");
    }
    return values;
  };
  EXPECT_EQ(all({}), ":0=abc :1=def :2=ghi ");
  EXPECT_EQ(all({{"hop_bytes", int64_t{2}}}), ":0=abc :1=cde :2=efg :3=ghi ");
  EXPECT_EQ(all({{"hop_bytes", int64_t{5}}}), ":0=abc :1=fgh ");
  MakeReader("FixedLengthRecordReaderV2", {Path("f")}, {{"record_bytes", int64_t{1}}, {"header_bytes", int64_t{13}}});
  EXPECT_EQ(Next(), "OUT_OF_RANGE");
  const Endpoint bad =
      b_.Op("FixedLengthRecordReaderV2", {}, {{"record_bytes", int64_t{1}}, {"hop_bytes", int64_t{-1}}});
  EXPECT_EQ(CodeOf(b_.Op("ReaderNumRecordsProducedV2", {bad})), StatusCode::kInvalidArgument);
}

TEST_F(IoOpsTest, ReadUpToStaysInOneFile) {
  WriteBytes("a", "1\n2\n3\n");
  WriteBytes("b", "4\n");
  MakeReader("TextLineReaderV2", {Path("a"), Path("b")});
  const auto up_to = [&](int64_t n) {
    Node* const node = b_.AddNode("ReaderReadUpToV2", {{reader_, queue_, b_.Const(Tensor::Scalar<int64_t>(n))}});
    return Values<std::string>(node->output(1));
  };
  EXPECT_THAT(up_to(0), ElementsAre());
  EXPECT_THAT(up_to(2), ElementsAre("1", "2"));
  EXPECT_THAT(up_to(2), ElementsAre("3"));
  EXPECT_THAT(up_to(2), ElementsAre("4"));
  EXPECT_EQ(CodeOf(b_.Op("ReaderReadUpToV2", {reader_, queue_, b_.Const(Tensor::Scalar<int64_t>(-1))})),
            StatusCode::kInvalidArgument);
}

TEST_F(IoOpsTest, TheStateOfAReaderOfNamesIsItsCounts) {
  MakeReader("IdentityReaderV2", {"a", "b"});
  EXPECT_EQ(Next(), "a=a");
  const std::string state = Ask("ReaderSerializeState");
  EXPECT_EQ(state,
            "\x08\x01\x10\x01\x18\x01\"\x01"
            "a");
  EXPECT_EQ(Next(), "b=b");
  const auto restore = [&](const std::string& text) {
    return CodeOf(b_.AddNode("ReaderRestoreStateV2", {{reader_, Text(text)}}));
  };
  EXPECT_EQ(restore(state), StatusCode::kOk);
  EXPECT_EQ(Ask("ReaderNumRecordsProduced"), "1");
  EXPECT_EQ(restore("abc"), StatusCode::kInvalidArgument);
  EXPECT_EQ(restore("\x08\x02\x10\x01"), StatusCode::kInvalidArgument);
}

TEST_F(IoOpsTest, AReadThatWaitsEndsWithItsStep) {
  auto waits = std::make_shared<WaitRegistry>();
  session_ = Session::Create({.waits = waits}).value();
  MakeReader("IdentityReaderV2", {}, {}, /*close=*/false);
  ASSERT_TRUE(Fetch({}, {b_.AddNode("NoOp", {})}).ok());  // the graph is in the session
  ASSERT_TRUE(session_->Extend(graph_).ok());
  CancellationManager cancel[2];
  Status ended[2];
  std::vector<std::thread> steps;
  for (int i = 0; i < 2; ++i) {
    steps.emplace_back([&, i] {
      RunOptions options;
      options.cancellation = &cancel[i];
      std::vector<Tensor> results;
      const std::vector<std::string> fetches = {read_->output(0).name()};
      ended[i] = session_->Run(options, {}, fetches, {}, &results, nullptr);
    });
    // The first waits for the queue, the second for the first.
    while (waits->List().size() < static_cast<size_t>(i) + 1) std::this_thread::yield();
  }
  cancel[1].StartCancel();
  steps[1].join();
  EXPECT_EQ(ended[1].code(), StatusCode::kCancelled) << ended[1];
  cancel[0].StartCancel();
  steps[0].join();
  EXPECT_EQ(ended[0].code(), StatusCode::kCancelled) << ended[0];
  EXPECT_TRUE(waits->List().empty());
  ASSERT_TRUE(Run(b_.AddNode("QueueEnqueueV2", {{queue_, Text("late")}})).ok());
  EXPECT_EQ(Next(), "late=late") << "nothing of the cancelled reads is left";
}

}  // namespace
}  // namespace millrace
