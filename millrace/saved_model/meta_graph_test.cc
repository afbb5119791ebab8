#include "millrace/saved_model/meta_graph.h"

#include "millrace/saved_model/saved_model_testing.h"

namespace millrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> NamesOf(const std::vector<Var>& variables) {
  std::vector<std::string> names;
  for (const Var& variable : variables) names.push_back(variable.var_name());
  return names;
}

// Five steps of training: three, a checkpoint, two.
class MetaGraphTest : public testing::Test {
 protected:
  void SetUp() override {
    LinearNet model;
    Saver saver(model.root);
    ClientSession session = model.MakeSession();
    const auto train = [&](int steps) {
      for (int i = 0; i < steps; ++i) ASSERT_TRUE(session.Run({{model.x, kRow}}, {}, {model.train}).ok());
    };
    train(3);
    prefix_ = saver.Save(&session, temporary_.File("model.ckpt"), {.write_meta_graph = false}).value();
    const ExportMetaGraphOptions options = {.saver = &saver, .collections = {{"train_op", {model.train.name()}}}};
    ASSERT_TRUE(WriteMetaGraph(ExportMetaGraph(model.root, options).value(), temporary_.File("meta")).ok());
    train(2);
    after_five_ = Floats(session.Run({model.w}).value()[0]);
  }

  pb::MetaGraphDef Meta() { return ReadMetaGraph(temporary_.File("meta")).value(); }

  TempDirectory temporary_ = TempDirectory::Make("meta_graph").value();
  std::string prefix_;
  std::vector<float> after_five_;
};

TEST_F(MetaGraphTest, AnImportedGraphTrainsOn) {
  for (const bool in_scope : {false, true}) {
    const Scope root = Scope::NewRoot();
    const Scope scope = in_scope ? root.SubScope("old").SubScope("model") : root;
    StatusOr<ImportedGraph> imported = ImportMetaGraph(scope, Meta());
    ASSERT_TRUE(imported.ok()) << imported.status();
    const std::string at = in_scope ? "old/model/" : "";
    EXPECT_THAT(NamesOf(TrainableVariables(root)), ElementsAre(at + "w", at + "b"));
    EXPECT_EQ(GlobalStep(root).var_name(), at + "global_step");
    const std::unique_ptr<Saver> saver = imported->MakeSaver().value();
    const std::vector<Operation> train = imported->Ops("train_op").value();
    ASSERT_THAT(train, SizeIs(1));
    const Output x = imported->Tensor("x:0").value();
    EXPECT_EQ(x.shape().ToString(), "[?,2]");

    ClientSession session = ClientSession::Create(root).value();
    ASSERT_EQ(saver->Restore(&session, prefix_), absl::OkStatus());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(session.Run({{x, kRow}}, {}, train).ok());
    EXPECT_EQ(Floats(session.Run({TrainableVariables(root)[0]}).value()[0]), after_five_);
    EXPECT_EQ(session.Run({GlobalStep(root)}).value()[0].scalar<int64_t>(), 5);
    // The imported saver saves too.
    const std::string saved = saver->Save(&session, temporary_.File("more.ckpt"), {.write_meta_graph = false}).value();
    EXPECT_EQ(Floats(LoadVariable(saved, "w").value()), after_five_);
  }
}

TEST_F(MetaGraphTest, ANewOptimizerTrainsImportedVariables) {
  const Scope root = Scope::NewRoot();
  const ImportedGraph imported = ImportMetaGraph(root, Meta()).value();
  const Operation train = optimizers::GradientDescent({.learning_rate = 0.01})
                              .Minimize(root.SubScope("again"), imported.Tensor("loss:0").value());
  const Operation init = GlobalVariablesInitializer(root);
  ASSERT_EQ(root.status(), absl::OkStatus());
  ClientSession session = ClientSession::Create(root).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());
  const Output x = imported.Tensor("x:0").value(), loss = imported.Tensor("loss:0").value();
  const float before = session.Run({{x, kRow}}, {loss}).value()[0].scalar<float>();
  ASSERT_TRUE(session.Run({{x, kRow}}, {}, {train}).ok());
  EXPECT_LT(session.Run({{x, kRow}}, {loss}).value()[0].scalar<float>(), before);
}

TEST_F(MetaGraphTest, ImportErrorsNameWhatIsWrongAndAddNothing) {
  const Scope root = Scope::NewRoot();
  const auto error = [&](const pb::MetaGraphDef& meta) {
    return std::string(ImportMetaGraph(root, meta).status().message());
  };
  pb::MetaGraphDef meta = Meta();
  (*meta.mutable_collection_def())["update_ops"].mutable_node_list()->add_value("nothing");
  EXPECT_THAT(error(meta), HasSubstr("update_ops names 'nothing', which is not in the graph"));
  meta = Meta();
  (*meta.mutable_collection_def())["variables"].mutable_bytes_list()->add_value("\xff");
  EXPECT_THAT(error(meta), HasSubstr("an entry of the collection variables is no variable"));
  meta = Meta();
  meta.mutable_graph_def()->mutable_node(0)->set_op("Frobnicate");
  EXPECT_THAT(error(meta), HasSubstr("Frobnicate"));
  EXPECT_EQ(root.graph()->num_nodes(), 0);
  EXPECT_THAT(GlobalVariables(root), SizeIs(0));

  ASSERT_EQ(error(Meta()), "");
  EXPECT_THAT(error(Meta()), HasSubstr("the graph has a node x already; import into a sub-scope"));
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), temporary_.File("meta"), "no graph").ok());
  EXPECT_THAT(std::string(ReadMetaGraph(temporary_.File("meta")).status().message()), HasSubstr("is not a MetaGraph"));
}

TEST_F(MetaGraphTest, ASaverWhoseNodesAreMissingIsRefused) {
  const Scope root = Scope::NewRoot();
  pb::MetaGraphDef meta = Meta();
  meta.mutable_saver_def()->set_restore_op_name("nothing");
  const ImportedGraph imported = ImportMetaGraph(root, meta).value();
  EXPECT_THAT(std::string(imported.MakeSaver().status().message()), HasSubstr("'nothing', which is not in the graph"));
  meta.clear_saver_def();
  EXPECT_TRUE(absl::IsFailedPrecondition(ImportMetaGraph(Scope::NewRoot(), meta).value().MakeSaver().status()));
}

}  // namespace
}  // namespace millrace
