#include "millrace/graph/graph_def.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

pb::GraphDef Parse(const std::string& text) {
  pb::GraphDef def;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &def));
  return def;
}

constexpr char kSource[] = R"(node { name: "x" op: "TestSource" attr { key: "T" value { type: DT_FLOAT } } } )";
constexpr char kT[] = R"(attr { key: "T" value { type: DT_FLOAT } })";

std::string Pass(const std::string& name, const std::string& inputs) {
  return absl::StrCat("node { name: '", name, "' op: 'TestPass' ", inputs, kT, " } ");
}

TEST(GraphDefTest, RoundTripKeepsEverything) {
  pb::GraphDef def = Parse(absl::StrCat(kSource, R"(
    node { name: "y" op: "TestPass" input: "x" input: "^x" device: "/job:ps" )",
                                        kT, R"(
      attr { key: "_class" value { list { s: "loc:@x" } } } attr { key: "_mine" value { i: 7 } } }
    node { name: "s" op: "TestSplit" input: "y" attr { key: "N" value { i: 2 } } )",
                                        kT, R"(}
    node { name: "z" op: "TestPass" input: "s:1" )",
                                        kT, R"( }
    library { function { signature { name: "f" } } }
    versions { producer: 2474 })"));
  def.mutable_node(0)->mutable_attr()->insert(
      {"shape", OpRegistry::Global().FindOrNull("TestSource")->FindAttr("shape")->default_value});
  Graph graph;
  Status status = ImportGraphDef(def, &graph);
  ASSERT_TRUE(status.ok()) << status;
  pb::GraphDef out = ExportGraphDef(graph);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(def, out)) << out.DebugString();
  Graph again;
  ASSERT_TRUE(ImportGraphDef(out, &again).ok());
  EXPECT_EQ(GraphToString(again), GraphToString(graph));
}

TEST(GraphDefTest, ExportWritesDefaults) {
  Graph graph;
  ASSERT_TRUE(ImportGraphDef(Parse("node { name: 'm' op: 'TestModes' }"), &graph).ok());
  EXPECT_EQ(ExportGraphDef(graph).node(0).attr().at("k").i(), 3);
}

// The attr says that a call was written as a node whose op is the function's name. It is ours; a peer may send it.
TEST(GraphDefTest, NodesOfAClientAreExportedAsTheyAreWhateverAttrsTheyHave) {
  const pb::GraphDef def = Parse(R"(
    node { name: "while" op: "While" attr { key: "_call_by_name" value { b: true } }
      attr { key: "T" value { list { } } }
      attr { key: "cond" value { func { name: "f" } } } attr { key: "body" value { func { name: "f" } } } }
    node { name: "call" op: "PartitionedCall" attr { key: "_call_by_name" value { b: true } }
      attr { key: "Tin" value { list { } } } attr { key: "Tout" value { list { } } }
      attr { key: "f" value { func { name: "unknown" } } } })");
  Graph graph;
  const Status status = ImportGraphDef(def, &graph);
  ASSERT_TRUE(status.ok()) << status;
  const pb::GraphDef out = ExportGraphDef(graph);
  EXPECT_EQ(out.node(0).op(), "While");
  EXPECT_EQ(out.node(1).op(), "PartitionedCall");
  EXPECT_FALSE(out.node(1).attr().contains("_call_by_name"));
  Graph again;
  EXPECT_EQ(ImportGraphDef(out, &again), absl::OkStatus());
}

TEST(GraphDefTest, NodesMayReferToEarlierImportsAndLaterNodes) {
  Graph graph;
  ASSERT_TRUE(ImportGraphDef(Parse(kSource), &graph).ok());
  ASSERT_TRUE(ImportGraphDef(Parse(Pass("b", "input: 'a' ") + Pass("a", "input: 'x' ")), &graph).ok());
  EXPECT_EQ(GraphToString(graph), "x = TestSource()\nb = TestPass(a)\na = TestPass(x)\n");
  EXPECT_EQ(TopologicalOrder(graph)->at(1)->name(), "a");
}

TEST(GraphDefTest, LoopsComeWithTheirMergeFirst) {
  Graph graph;
  Status status = ImportGraphDef(Parse(absl::StrCat(kSource, R"(
    node { name: "e" op: "Enter" input: "x" attr { key: "frame_name" value { s: "f" } } )",
                                                    kT, R"( }
    node { name: "m" op: "Merge" input: "e" input: "n" attr { key: "N" value { i: 2 } } )",
                                                    kT, R"( }
    node { name: "n" op: "NextIteration" input: "m" )",
                                                    kT, " }")),
                                 &graph);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(graph.FindNode("m")->input(1).node, graph.FindNode("n"));
}

struct BadGraph {
  std::string text;
  absl::StatusCode code;
  const char* message;
};

TEST(GraphDefTest, MalformedGraphsAreRefusedAndChangeNothing) {
  const std::string source = kSource;
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto kNotFound = absl::StatusCode::kNotFound;
  const BadGraph cases[] = {
      {"node { name: 'n' op: 'Nonsense' }", kNotFound, "Nonsense"},
      {"node { name: 'n' op: 'TestPass' input: 'y' }", kNotFound, "'T'"},
      {Pass("n", "input: 'nobody' "), kInvalid, "nobody"},
      {Pass("n", "input: 'y:1' "), kInvalid, "outputs"},
      {Pass("n", "input: 'y:-1' "), kInvalid, "y:-1"},
      {Pass("n", "input: 'y:99999999999' "), kInvalid, "names no output"},
      {Pass("n", ""), kInvalid, "too few inputs"},
      {Pass("n", "input: 'y' input: 'y' "), kInvalid, "takes 1 inputs but has 2"},
      {Pass("n", "input: '^y' input: 'y' "), kInvalid, "after control inputs"},
      {Pass("n", "input: 'n' "), kInvalid, "cycle"},
      {Pass("n", "input: 'o' ") + Pass("o", "input: 'n' "), kInvalid, "cycle"},
      {Pass("n", "input: 'y' ") + Pass("n", "input: 'y' "), kInvalid, "'n' is in the graph already"},
      {Pass("y", "input: 'y' "), kInvalid, "already"},
      {Pass("_n", "input: 'y' "), kInvalid, "not valid"},
      {Pass("", "input: 'y' "), kInvalid, "not valid"},
      {"node { name: 'n' op: 'TestPass' input: 'y' attr { key: 'T' value { type: DT_INT32 } } }", kInvalid,
       "takes int32 but y:0 is float"},
      {"node { name: 'n' op: 'TestPass' input: 'y' attr { key: 'T' value { i: 1 } } }", kInvalid, "'T'"},
      {"node { name: 'n' op: 'TestPass' input: 'y' attr { key: 'T' value { placeholder: 'P' } } }", kInvalid, "'T'"},
      {"node { name: 'n' op: 'TestMany' input: 'y' attr { key: 'N' value { i: 1000000000000 } } "
       "attr { key: 'T' "
       "value { type: DT_FLOAT } } }",
       kInvalid, "N"},
      {"node { name: 'n' op: 'TestModes' attr { key: 'extra' value { i: 1 } } }", kInvalid, "extra"},
  };
  Graph graph;
  ASSERT_TRUE(ImportGraphDef(Parse(source + Pass("y", "input: 'x' ")), &graph).ok());
  const std::string before = GraphToString(graph);
  const int ids = graph.max_id();
  for (const BadGraph& bad : cases) {
    Status status = ImportGraphDef(Parse(Pass("first", "input: 'y' ") + bad.text), &graph);
    EXPECT_EQ(status.code(), bad.code) << status << " for " << bad.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message)) << bad.text;
    EXPECT_EQ(GraphToString(graph), before);
    EXPECT_EQ(graph.max_id(), ids);
    EXPECT_EQ(graph.FindNode("first"), nullptr);
  }
}

TEST(GraphDefTest, AFunctionMayComeTwiceButNotInTwoVersions) {
  const std::string f = "library { function { signature { name: 'f' } } }";
  Graph graph;
  ASSERT_TRUE(ImportGraphDef(Parse(f), &graph).ok());
  ASSERT_TRUE(ImportGraphDef(Parse(f), &graph).ok());
  EXPECT_EQ(graph.library().function_size(), 1);
  Status status = ImportGraphDef(Parse("library { function { signature { name: 'f' is_stateful: true } } }"), &graph);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(GraphDefTest, RepeatedControlInputsCountOnce) {
  Graph graph;
  ASSERT_TRUE(ImportGraphDef(Parse(kSource + Pass("y", "input: 'x' input: '^x' input: '^x' ")), &graph).ok());
  EXPECT_EQ(graph.FindNode("y")->control_inputs().size(), 1u);
}

}  // namespace
}  // namespace millrace
