#include "millrace/saved_model/saved_model.h"

#include <thread>

#include "millrace/io/faulty_files_testing.h"
#include "millrace/saved_model/builder.h"
#include "millrace/saved_model/saved_model_testing.h"

namespace millrace {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class SavedModelTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), temporary_.File("words.txt"), "red\ngreen\nblue\n").ok());
  }

  // A model with an asset, under `directory`.
  Status Export(const std::string& directory, bool strip_default_attrs = false) {
    LinearNet model(temporary_.File("words.txt"));
    ClientSession session = model.MakeSession();
    SavedModelBuilder builder(directory);
    AddMetaGraphOptions options;
    options.assets = {model.file};
    options.main_op = model.tables;
    options.collections = {{"train_op", {model.train.name()}}};
    options.strip_default_attrs = strip_default_attrs;
    MR_RETURN_IF_ERROR(
        builder.AddMetaGraphAndVariables(model.root, &session, {"serve"}, model.MakeSignatures(), options));
    LinearNet other;
    MR_RETURN_IF_ERROR(builder.AddMetaGraph(other.root, {"train", "cpu"}, {}));
    return builder.Save();
  }

  std::string LoadError(const std::string& directory, const TagSet& tags = {"serve"}) {
    return std::string(LoadSavedModel({}, directory, tags).status().message());
  }

  void Overwrite(const std::string& path, absl::string_view content) {
    ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), path, content).ok());
  }
  // Changes saved_model.pb.
  template <typename Change>
  void Alter(const std::string& directory, Change change) {
    pb::SavedModel model = ReadSavedModel(directory).value();
    change(model.mutable_meta_graphs(0));
    Overwrite(JoinPath(directory, "saved_model.pb"), model.SerializeAsString());
  }

  TempDirectory temporary_ = TempDirectory::Make("saved_model").value();
  const std::string directory_ = temporary_.File("models/17");
};

TEST_F(SavedModelTest, AnExportedModelPredictsTheSame) {
  for (const bool strip : {false, true}) {
    const std::string directory = temporary_.File(strip ? "stripped" : "whole");
    ASSERT_EQ(Export(directory, strip), absl::OkStatus());
    // The asset is a copy within the model.
    ASSERT_TRUE(FileSystem::Posix()->Exists(directory + "/assets/words.txt").ok());
    StatusOr<std::unique_ptr<SavedModel>> model = LoadSavedModel({}, directory);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto outputs = (*model)->Predict("serving_default", {{"x", kRow}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(Floats(outputs->at("y")), ElementsAre(4.5, 6.25));
    EXPECT_THAT(Floats(outputs->at("same")), ElementsAre(1, 1));
    const auto ids = (*model)->Predict("look_up", {{"words", Tensor::Of<std::string>({"blue", "x", "red"})}});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_THAT(ids->at("ids").flat<int64_t>(), ElementsAre(2, -1, 0));
  }
}

TEST_F(SavedModelTest, PredictNamesWhatIsWrongWithTheInputs) {
  ASSERT_EQ(Export(directory_), absl::OkStatus());
  const std::unique_ptr<SavedModel> model = LoadSavedModel({}, directory_).value();
  const auto error = [&](const std::string& signature, const SavedModel::NamedTensors& inputs) {
    return std::string(model->Predict(signature, inputs).status().message());
  };
  EXPECT_THAT(error("classify", {}), HasSubstr("no signature 'classify'; there are: look_up, serving_default"));
  EXPECT_THAT(error("serving_default", {}), HasSubstr("input 'x' is missing: float[?,2]"));
  EXPECT_THAT(error("serving_default", {{"z", kRow}}), HasSubstr("no input 'z'; there are: x"));
  EXPECT_THAT(error("serving_default", {{"x", Tensor::Of<int32_t>(Shape({1, 2}), {1, 1})}}),
              HasSubstr("signature 'serving_default': input 'x' is int32, but must be float"));
  EXPECT_THAT(error("serving_default", {{"x", Tensor::Of<float>({1})}}),
              HasSubstr("input 'x' has shape [1], but must have [?,2]"));
}

TEST_F(SavedModelTest, AnInputWithADefaultMayBeLeftOut) {
  ASSERT_EQ(Export(directory_), absl::OkStatus());
  Alter(directory_, [](pb::MetaGraphDef* meta) {
    pb::AttrValue value = AttrInit(kRow).value();
    (*(*meta->mutable_signature_def())["serving_default"].mutable_defaults())["x"] = value.tensor();
  });
  const std::unique_ptr<SavedModel> model = LoadSavedModel({}, directory_).value();
  const auto outputs = model->Predict("serving_default", {});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(Floats(outputs->at("y")), ElementsAre(4.5, 6.25));
}

TEST_F(SavedModelTest, ErrorsOfLoadingNameWhatIsWrong) {
  EXPECT_THAT(LoadError(temporary_.File("nowhere")), HasSubstr("nowhere does not exist"));
  EXPECT_THAT(LoadError(temporary_.path()), HasSubstr("it has neither saved_model.pb nor saved_model.pbtxt"));
  ASSERT_EQ(Export(directory_), absl::OkStatus());
  EXPECT_THAT(LoadError(directory_, {"serve", "gpu"}),
              HasSubstr("no graph has exactly the tags {gpu, serve}; there are {serve} and {cpu, train}"));

  const std::string file = directory_ + "/saved_model.pb";
  const std::string whole = ReadWholeFile(FileSystem::Posix(), file).value();
  for (const size_t size : {size_t{1}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    Overwrite(file, whole.substr(0, size));
    EXPECT_THAT(LoadError(directory_), HasSubstr("saved_model.pb is not a SavedModel, or it is truncated")) << size;
  }
  Overwrite(file, "");
  EXPECT_THAT(LoadError(directory_), HasSubstr("saved_model.pb has no graph"));
  Overwrite(file, "\x08\x07");
  EXPECT_THAT(LoadError(directory_), HasSubstr("schema version 7"));
  Overwrite(file, whole);

  ASSERT_TRUE(FileSystem::Posix()->Remove(directory_ + "/assets/words.txt").ok());
  EXPECT_THAT(LoadError(directory_), AllOf(HasSubstr("an asset of the model"), HasSubstr("words.txt")));
  Overwrite(directory_ + "/assets/words.txt", "red\n");
  Overwrite(directory_ + "/variables/variables.data-00000-of-00001", "short");
  EXPECT_THAT(LoadError(directory_), AllOf(HasSubstr("the variables of the model"), HasSubstr("variables.data")));
  ASSERT_TRUE(FileSystem::Posix()->RemoveTree(directory_ + "/variables").ok());
  EXPECT_THAT(LoadError(directory_), AllOf(HasSubstr("the variables of the model"), HasSubstr("variables.index")));
}

TEST_F(SavedModelTest, AnAssetOutsideOfTheModelIsRefused) {
  ASSERT_EQ(Export(directory_), absl::OkStatus());
  for (const std::string name : {"../saved_model.pb", "/etc/passwd", "a/../../x", "", ".."}) {
    Alter(directory_, [&](pb::MetaGraphDef* meta) { meta->mutable_asset_file_def(0)->set_filename(name); });
    EXPECT_THAT(LoadError(directory_), HasSubstr(absl::StrCat("the asset '", name, "' is not the name of a file")));
  }
}

TEST_F(SavedModelTest, AnUnknownOpIsNamed) {
  ASSERT_EQ(Export(directory_), absl::OkStatus());
  Alter(directory_, [](pb::MetaGraphDef* meta) { meta->mutable_graph_def()->mutable_node(0)->set_op("Frobnicate"); });
  EXPECT_THAT(LoadError(directory_), HasSubstr("Frobnicate"));
}

TEST_F(SavedModelTest, AttrsOfALaterVersionAreIgnoredIfTheyHaveTheirDefaults) {
  ASSERT_EQ(Export(directory_), absl::OkStatus());
  const auto alter = [&](bool value) {
    Alter(directory_, [value](pb::MetaGraphDef* meta) {
      for (pb::NodeDef& node : *meta->mutable_graph_def()->mutable_node()) {
        if (node.op() == "MatMul") (*node.mutable_attr())["of_tomorrow"].set_b(value);
      }
      for (pb::OpDef& op : *meta->mutable_meta_info_def()->mutable_stripped_op_list()->mutable_op()) {
        if (op.name() != "MatMul") continue;
        auto* const attr = op.add_attr();
        attr->set_name("of_tomorrow");
        attr->set_type("bool");
        attr->mutable_default_value()->set_b(false);
      }
    });
  };
  alter(false);
  EXPECT_EQ(LoadError(directory_), "");
  alter(true);
  EXPECT_THAT(LoadError(directory_), HasSubstr("of_tomorrow"));
}

TEST_F(SavedModelTest, TextIsReadToo) {
  ASSERT_EQ(Export(directory_), absl::OkStatus());
  const std::string text = ReadSavedModel(directory_).value().DebugString();
  ASSERT_TRUE(FileSystem::Posix()->Remove(directory_ + "/saved_model.pb").ok());
  Overwrite(directory_ + "/saved_model.pbtxt", text);
  EXPECT_EQ(LoadError(directory_), "");
  Overwrite(directory_ + "/saved_model.pbtxt", "meta_graphs {\n  oops\n");
  EXPECT_THAT(LoadError(directory_), AllOf(HasSubstr("saved_model.pbtxt is not the text"), HasSubstr("line ")));
}

TEST_F(SavedModelTest, TheModelIsWholeOrAbsent) {
  LinearNet model;
  ClientSession session = model.MakeSession();
  {
    SavedModelBuilder builder(directory_);
    ASSERT_EQ(builder.AddMetaGraphAndVariables(model.root, &session, {"serve"}, model.MakeSignatures()),
              absl::OkStatus());
    EXPECT_TRUE(absl::IsNotFound(FileSystem::Posix()->Exists(directory_)));
  }
  // A builder that does not save leaves nothing.
  EXPECT_THAT(FileSystem::Posix()->List(temporary_.File("models")).value(), IsEmpty());
  ASSERT_EQ(SimpleSave(model.root, &session, directory_, {{"x", model.x}}, {{"y", model.y}}), absl::OkStatus());
  EXPECT_THAT(FileSystem::Posix()->List(temporary_.File("models")).value(), ElementsAre("17"));
  EXPECT_THAT(FileSystem::Posix()->List(directory_).value(), UnorderedElementsAre("saved_model.pb", "variables"));
  const Status again = SimpleSave(model.root, &session, directory_, {{"x", model.x}}, {{"y", model.y}});
  EXPECT_TRUE(absl::IsAlreadyExists(again)) << again;
  EXPECT_EQ(LoadError(directory_), "");
}

TEST_F(SavedModelTest, ACrashAtAnyChangeLeavesAWholeModelOrNone) {
  LinearNet model(temporary_.File("words.txt"));
  ClientSession session = model.MakeSession();
  AddMetaGraphOptions options;
  options.assets = {model.file};
  options.main_op = model.tables;
  Saver saver(model.root);  // one set of nodes for all
  options.saver = &saver;
  bool finished = false;
  int whole = 0;
  for (int n = 0; !finished; ++n) {
    ASSERT_LT(n, 100);
    const std::string directory = temporary_.File(absl::StrCat("crash", n, "/model"));
    FaultyFiles files;
    files.CrashAtChange(n);
    {
      SavedModelBuilder builder(directory, &files);
      const Status added =
          builder.AddMetaGraphAndVariables(model.root, &session, {"serve"}, model.MakeSignatures(), options);
      finished = added.ok() && builder.Save().ok();
    }
    if (absl::IsNotFound(FileSystem::Posix()->Exists(directory))) continue;
    ++whole;
    EXPECT_EQ(LoadError(directory), "") << n;
  }
  EXPECT_GE(whole, 1);
}

TEST_F(SavedModelTest, SeveralThreadsPredict) {
  ASSERT_EQ(Export(directory_), absl::OkStatus());
  const std::unique_ptr<SavedModel> model = LoadSavedModel({}, directory_).value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&model, i] {
      for (int k = 0; k < 20; ++k) {
        const float at = static_cast<float>(i);
        const auto outputs = model->Predict("serving_default", {{"x", Tensor::Of<float>(Shape({1, 2}), {at, 0})}});
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        EXPECT_THAT(Floats(outputs->at("y")), ElementsAre(at + 0.5f, 2 * at + 0.25f));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SavedModelTest, TheBuilderNamesWhatIsWrong) {
  LinearNet model(temporary_.File("nowhere.txt"));
  ClientSession session = model.MakeSession();
  SavedModelBuilder builder(directory_);
  const auto error = [&](const Signatures& signatures, const AddMetaGraphOptions& options = {}) {
    return std::string(
        builder.AddMetaGraphAndVariables(model.root, &session, {"serve"}, signatures, options).message());
  };
  EXPECT_THAT(std::string(builder.Save().message()), HasSubstr("has no graph"));
  EXPECT_THAT(std::string(builder.AddMetaGraph(model.root, {"serve"}, {}).message()), HasSubstr("no variables yet"));
  pb::SignatureDef wrong = PredictSignature({{"x", model.x}}, {});
  (*wrong.mutable_inputs())["x"].set_name("nothing:0");
  EXPECT_THAT(error({{"s", wrong}}), HasSubstr("signature 's': input 'x' is the tensor 'nothing:0', which is not in"));
  wrong = PredictSignature({}, {{"y", model.y}});
  (*wrong.mutable_outputs())["y"].set_dtype(::tensorflow::DT_INT32);
  EXPECT_THAT(error({{"s", wrong}}), HasSubstr("output 'y' is declared as int32, but y:0 is float"));
  EXPECT_THAT(error({}, {.assets = {model.x}}), HasSubstr("the asset x:0 (op Placeholder) is not a constant scalar"));
  EXPECT_THAT(error({}, {.assets = {model.file}}),
              AllOf(HasSubstr("the asset words_file:0"), HasSubstr("nowhere.txt")));
}

TEST_F(SavedModelTest, LargeVariablesAreMappedOrRead) {
  const Scope root = Scope::NewRoot();
  const Var table(root, "table", {300, 100}, init::Constant(2));  // 120 kB
  const Output x = ops::Placeholder(root.WithOpName("x"), DType::kInt32, {.shape = PartialShape({-1})});
  const Output row = ops::GatherV2(root, table, x, 0);
  const Operation add =
      AddOp(root.WithOpName("add"), "ResourceScatterAdd", {table.handle(), x, ops::OnesLike(root, row)});
  const Operation init = GlobalVariablesInitializer(root);
  ClientSession session = ClientSession::Create(root).value();
  ASSERT_TRUE(session.Run(init).ok());
  ASSERT_EQ(SimpleSave(root, &session, directory_, {{"x", x}}, {{"row", row}}), absl::OkStatus());
  const std::string file = directory_ + "/variables/variables.data-00000-of-00001";
  const std::string before = ReadWholeFile(FileSystem::Posix(), file).value();
  const Tensor five = Tensor::Of<int32_t>({5});
  for (const bool map : {true, false}) {
    const auto model = LoadSavedModel({}, directory_, {"serve"}, {.map_variables = map}).value();
    // What the model's own ops change is changed in this process only.
    for (const float value : {2.0f, 3.0f}) {
      EXPECT_EQ(Floats(model->Predict("serving_default", {{"x", five}}).value().at("row")),
                std::vector<float>(100, value));
      ASSERT_TRUE(model->session().Run({{"x:0", five}}, {}, {add.name()}).ok());
    }
    EXPECT_EQ(ReadWholeFile(FileSystem::Posix(), file).value(), before);
  }
  std::string damaged = before;
  damaged[100] ^= 1;
  Overwrite(file, damaged);
  for (const bool map : {true, false}) {
    const Status status = LoadSavedModel({}, directory_, {"serve"}, {.map_variables = map}).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("cannot restore the variables"), HasSubstr("table")));
  }
}

TEST_F(SavedModelTest, AModelWithoutVariablesNeedsNoCheckpoint) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Placeholder(root.WithOpName("x"), DType::kFloat);
  const Output y = ops::Square(root, x);
  ClientSession session = ClientSession::Create(root).value();
  ASSERT_EQ(SimpleSave(root, &session, directory_, {{"x", x}}, {{"y", y}}), absl::OkStatus());
  const std::unique_ptr<SavedModel> model = LoadSavedModel({}, directory_).value();
  EXPECT_THAT(Floats(model->Predict("serving_default", {{"x", kRow}}).value().at("y")), ElementsAre(1, 1));
}

const std::string kData = std::string(MILLRACE_TESTDATA) + "/saved_models/";

TEST(TensorFlowModelTest, OneOfTensorFlow2Predicts) {
  StatusOr<std::unique_ptr<SavedModel>> model = LoadSavedModel({}, kData + "tensorflow_2");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT((*model)->signatures(), testing::SizeIs(2));  // without __saved_model_init_op
  for (int64_t calls = 1; calls <= 2; ++calls) {
    const auto outputs = (*model)->Predict("serving_default", {{"x", kRow}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_THAT(Floats(outputs->at("y")), ElementsAre(4.5, 6.25));
    EXPECT_EQ(outputs->at("n").scalar<int64_t>(), calls);
  }
  const auto ids = (*model)->Predict("look_up", {{"words", Tensor::Of<std::string>({"blue", "x", "red"})}});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(ids->at("ids").flat<int64_t>(), ElementsAre(2, -1, 0));
}

TEST(TensorFlowModelTest, OneOfTensorFlow2IsTrainedAndExportedAgain) {
  const TempDirectory temporary = TempDirectory::Make("saved_model").value();
  const Scope root = Scope::NewRoot();
  const StatusOr<ImportedSavedModel> model = ImportSavedModel(root.SubScope("old"), kData + "tensorflow_2");
  ASSERT_TRUE(model.ok()) << model.status();
  const SignatureTensors inputs = model->Inputs("serving_default").value();
  const SignatureTensors outputs = model->Outputs("serving_default").value();
  EXPECT_THAT(GlobalVariables(root), testing::SizeIs(3));
  EXPECT_THAT(TrainableVariables(root), testing::SizeIs(2));  // floats
  const Output x = inputs.at("x"), y = outputs.at("y");
  const Output loss = ops::Mean(root, ops::Square(root, y), {0, 1});
  const Operation train = optimizers::Momentum({.learning_rate = 0.01, .momentum = 0.9}).Minimize(root, loss);
  const Operation init = GlobalVariablesInitializer(root);
  ASSERT_EQ(root.status(), absl::OkStatus());
  ClientSession session = ClientSession::Create(root).value();
  ASSERT_EQ(session.Run(init), absl::OkStatus());  // reads the model's checkpoint
  EXPECT_THAT(Floats(session.Run({{x, kRow}}, {y}).value()[0]), ElementsAre(4.5, 6.25));
  ASSERT_TRUE(session.Run({{x, kRow}}, {}, {train}).ok());
  const std::vector<float> trained = Floats(session.Run({{x, kRow}}, {y}).value()[0]);
  EXPECT_LT(trained[0], 4.5);
  EXPECT_LT(trained[1], 6.25);
  ASSERT_EQ(SimpleSave(root, &session, temporary.File("model"), inputs, outputs), absl::OkStatus());
  const std::unique_ptr<SavedModel> again = LoadSavedModel({}, temporary.File("model")).value();
  EXPECT_EQ(Floats(again->Predict("serving_default", {{"x", kRow}}).value().at("y")), trained);
}

TEST(TensorFlowModelTest, OneOfTensorFlow1IsTrainedAndExportedAgain) {
  const TempDirectory temporary = TempDirectory::Make("saved_model").value();
  const Scope root = Scope::NewRoot();
  const StatusOr<ImportedSavedModel> model = ImportSavedModel(root, kData + "tensorflow_1");
  ASSERT_TRUE(model.ok()) << model.status();
  const SignatureTensors inputs = model->Inputs("serving_default").value();
  const SignatureTensors outputs = model->Outputs("serving_default").value();
  EXPECT_TRUE(absl::IsNotFound(model->Inputs("other").status()));
  ClientSession session = ClientSession::Create(root).value();
  ASSERT_EQ(model->Restore(&session), absl::OkStatus());
  const Output x = inputs.at("x"), y = outputs.at("y");
  EXPECT_THAT(Floats(session.Run({{x, kRow}}, {y}).value()[0]), ElementsAre(4.5, 6.25));
  ASSERT_TRUE(session.Run({{x, kRow}}, {}, {model->graph().Op("train").value()}).ok());
  const std::vector<float> trained = Floats(session.Run({{x, kRow}}, {y}).value()[0]);
  EXPECT_LT(trained[0], 4.5);
  // Its variables are references, which a saver of ours saves too.
  ASSERT_EQ(SimpleSave(root, &session, temporary.File("model"), inputs, outputs), absl::OkStatus());
  const std::unique_ptr<SavedModel> again = LoadSavedModel({}, temporary.File("model")).value();
  EXPECT_EQ(Floats(again->Predict("serving_default", {{"x", kRow}}).value().at("y")), trained);
}

TEST(SignatureTest, OfClassificationAndRegressionChecksTypes) {
  const Scope root = Scope::NewRoot();
  const Output text = ops::Placeholder(root, DType::kString), number = ops::Placeholder(root, DType::kFloat);
  EXPECT_EQ(ClassificationSignature(text, text, number).value().method_name(), "tensorflow/serving/classify");
  EXPECT_EQ(ClassificationSignature(text, Output(), number).value().outputs_size(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(ClassificationSignature(text, Output(), Output()).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ClassificationSignature(text, number, number).status()));
  EXPECT_EQ(RegressionSignature(text, number).value().method_name(), "tensorflow/serving/regress");
  EXPECT_TRUE(absl::IsInvalidArgument(RegressionSignature(number, number).status()));
}

}  // namespace
}  // namespace millrace
