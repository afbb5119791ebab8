#include "millrace/estimator/exporter.h"

#include "millrace/base/child_process_testing.h"
#include "millrace/estimator/estimator_testing.h"
#include "millrace/proto/example.pb.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ServingInputFn RawX() { return RawServingInput({{"x", {DType::kFloat, {-1, 1}}}}); }

// The line with the three kinds of signatures.
EstimatorSpec ServedLine(const Scope& scope, const ModelArgs& args) {
  EstimatorSpec spec = LineModel(scope, args);
  const Output y = spec.predictions["y"];
  const Output sign = ops::SelectV2(scope, y > 0, ops::Fill(scope, ops::Shape(scope, y), "up"),
                                    ops::Fill(scope, ops::Shape(scope, y), "down"));
  spec.export_outputs = {{"serving_default", PredictOutput(spec.predictions)},
                         {"regress", RegressionOutput(y)},
                         {"classify", ClassificationOutput(y, sign)}};
  return spec;
}

std::string Example(std::optional<float> x) {
  ::tensorflow::Example example;
  if (x) (*example.mutable_features()->mutable_feature())["x"].mutable_float_list()->add_value(*x);
  return example.SerializeAsString();
}

class ExporterTest : public EstimatorTest {
 protected:
  // With checkpoints of steps 5, 10, ...
  Estimator Served(absl::string_view name = "run") const {
    RunConfigOptions options = Options(name);
    options.save_checkpoints_steps = 5;
    return Estimator::Create(ServedLine, RunConfig::Of({}, options).value()).value();
  }
  static std::vector<std::string> Names(const std::string& folder) {
    return FileSystem::Posix()->List(folder).value_or(std::vector<std::string>());
  }
  // What a model predicts for x = 1.
  static float Predicted(const std::string& directory) {
    const auto model = LoadSavedModel({}, directory);
    EXPECT_EQ(model.status(), absl::OkStatus());
    if (!model.ok()) return 0;
    const auto outputs = (*model)->Predict("serving_default", {{"x", Tensor::Of<float>(Shape({1, 1}), {1})}});
    EXPECT_EQ(outputs.status(), absl::OkStatus());
    return outputs.ok() ? outputs->at("y").data<float>()[0] : 0;
  }
  StatusOr<EvalResults> TrainTo(Estimator& estimator, int64_t steps,
                                std::vector<std::shared_ptr<Exporter>> exporters) const {
    return TrainAndEvaluate(estimator, {.input = LineInput(), .max_steps = steps},
                            {.input = LineInput(16, 8, 1), .exporters = std::move(exporters), .throttle = {}});
  }
};

TEST_F(ExporterTest, AnExportPredictsWhatTheCheckpointDoes) {
  Estimator estimator = Served();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 10}), absl::OkStatus());
  const std::string older = estimator.LatestCheckpoint().value();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 10}), absl::OkStatus());
  const std::string words = Dir("words");
  ASSERT_EQ(ReplaceFile(FileSystem::Posix(), words, "a\n"), absl::OkStatus());
  const std::string first =
      estimator.ExportSavedModel(Dir("out"), RawX(), {.assets_extra = {{"lists/words.txt", words}}}).value();
  const float b = estimator.GetVariableValue("b")->data<float>()[0];
  EXPECT_NEAR(Predicted(first), WeightOf(estimator) + b, 1e-6);
  EXPECT_EQ(ReadWholeFile(FileSystem::Posix(), JoinPath(first, "assets.extra/lists/words.txt")).value(), "a\n");
  // Only predictions can be asked for with numbers.
  const auto model = LoadSavedModel({}, first).value();
  EXPECT_THAT(model->signatures(), SizeIs(1));
  // A second one in the same second has another name, and an older checkpoint may be asked for.
  const std::string second = estimator.ExportSavedModel(Dir("out"), RawX(), {.checkpoint_path = older}).value();
  EXPECT_GT(second, first);
  EXPECT_NE(Predicted(second), Predicted(first));
}

TEST_F(ExporterTest, NamesOfExportsGrowWhateverTheClockSays) {
  class SetClock : public WallClock {
   public:
    absl::Time Now() override { return now; }
    absl::Time now = absl::FromUnixSeconds(1000);
  };
  SetClock clock;
  Estimator estimator = Served();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 1}), absl::OkStatus());
  const auto exported = [&] { return estimator.ExportSavedModel(Dir("out"), RawX(), {.wall_clock = &clock}).value(); };
  EXPECT_EQ(exported(), Dir("out/1000"));
  EXPECT_EQ(exported(), Dir("out/1001"));
  clock.now = absl::FromUnixSeconds(500);
  EXPECT_EQ(exported(), Dir("out/1002"));
  clock.now = absl::FromUnixSeconds(2000);
  EXPECT_EQ(exported(), Dir("out/2000"));
}

TEST_F(ExporterTest, ExamplesAreParsed) {
  Estimator estimator = Served();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 50}), absl::OkStatus());
  const auto served = [&](std::optional<Tensor> missing) {
    return estimator.ExportSavedModel(
        Dir("out"), ParsingServingInput({{"x", {.shape = {1}, .default_value = std::move(missing)}}}));
  };
  const auto model = LoadSavedModel({}, served(Tensor::Of<float>({0.5f})).value()).value();
  const auto ask = [&](const char* signature, const char* input, std::vector<std::optional<float>> xs) {
    std::vector<std::string> examples;
    for (const auto& x : xs) examples.push_back(Example(x));
    return model->Predict(signature, {{input, Tensor::FromVector(examples)}}).value();
  };
  const float w = WeightOf(estimator), b = estimator.GetVariableValue("b")->data<float>()[0];
  const auto predicted = ask("serving_default", "examples", {1.0f, std::nullopt});
  EXPECT_NEAR(predicted.at("y").data<float>()[0], w + b, 1e-6);
  EXPECT_NEAR(predicted.at("y").data<float>()[1], 0.5 * w + b, 1e-6);  // the default
  EXPECT_NEAR(ask("regress", "inputs", {2.0f}).at("outputs").data<float>()[0], 2 * w + b, 1e-6);
  EXPECT_EQ(ask("classify", "inputs", {9.0f}).at("classes").data<std::string>()[0], "up");
  // Without a default the feature must be there.
  const auto strict = LoadSavedModel({}, served(std::nullopt).value()).value();
  const auto answer =
      strict->Predict("serving_default", {{"examples", Tensor::FromVector<std::string>({Example({})})}});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExporterTest, WhatCannotBeExportedIsNamed) {
  Estimator estimator = Served();
  EXPECT_EQ(estimator.ExportSavedModel(Dir("out"), RawX()).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 1}), absl::OkStatus());
  const auto error = [&](const ServingInputFn& serving, const ExportOptions& options = {}) {
    const Status status = estimator.ExportSavedModel(Dir("out"), serving, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error(nullptr), HasSubstr("no serving input function"));
  EXPECT_THAT(error([](const Scope&) { return ServingInput(); }), HasSubstr("no features"));
  EXPECT_THAT(error(ParsingServingInput({{"x", {.dtype = DType::kInt32}}})),
              HasSubstr("the feature 'x' has type int32"));
  EXPECT_THAT(error(ParsingServingInput({{"x", {.shape = {2}, .default_value = Tensor::Of<float>({1, 2, 3})}}})),
              HasSubstr("the feature 'x' is float[2], and its default is"));
  EXPECT_THAT(error(RawX(), {.assets_extra = {{"../x", "/dev/null"}}}), HasSubstr("../x"));
  const auto with_outputs = [&](std::map<std::string, ExportOutput> (*outputs)(const Output& y)) {
    const ModelFn model = [=](const Scope& scope, const ModelArgs& args) {
      EstimatorSpec spec = LineModel(scope, args);
      spec.export_outputs = outputs(spec.predictions["y"]);
      return spec;
    };
    Estimator other = Estimator::Create(model, RunConfig::Of({}, Options()).value()).value();
    return std::string(other.ExportSavedModel(Dir("out"), RawX()).status().message());
  };
  EXPECT_THAT(
      with_outputs([](const Output& y) {
        return std::map<std::string, ExportOutput>{{"a", PredictOutput({{"y", y}})}, {"b", PredictOutput({{"y", y}})}};
      }),
      HasSubstr("export_outputs a, b none is called 'serving_default'"));
  EXPECT_THAT(with_outputs([](const Output& y) {
                return std::map<std::string, ExportOutput>{{"a", RegressionOutput(y)}};
              }),
              HasSubstr("'a': its input must be a single string tensor"));
  EXPECT_THAT(Names(Dir("out")), IsEmpty());  // nothing is left of any of them
}

TEST_F(ExporterTest, FinalOnceLatestAlways) {
  Estimator estimator = Served();
  const auto results =
      TrainTo(estimator, 20,
              {std::make_shared<FinalExporter>("last", RawX()), std::make_shared<LatestExporter>("each", RawX()),
               std::make_shared<LatestExporter>("two", RawX(), LatestExporterOptions{.exports_to_keep = 2})});
  ASSERT_EQ(results.status(), absl::OkStatus());
  const std::vector<std::string> each = Names(Dir("run/export/each")), two = Names(Dir("run/export/two"));
  ASSERT_THAT(each, SizeIs(4));  // of steps 5, 10, 15, 20
  ASSERT_THAT(two, SizeIs(2));
  ASSERT_THAT(Names(Dir("run/export/last")), SizeIs(1));
  const float last = WeightOf(estimator) + estimator.GetVariableValue("b")->data<float>()[0];
  EXPECT_NEAR(Predicted(JoinPath(Dir("run/export/last"), Names(Dir("run/export/last"))[0])), last, 1e-6);
  EXPECT_NEAR(Predicted(JoinPath(Dir("run/export/each"), each[3])), last, 1e-6);
  EXPECT_NEAR(Predicted(JoinPath(Dir("run/export/two"), two[1])), last, 1e-6);
  EXPECT_NE(Predicted(JoinPath(Dir("run/export/each"), each[0])), last);
}

TEST_F(ExporterTest, TheLastCheckpointIsExportedOnceIfTheInputEndsThere) {
  Estimator estimator = Served();
  const auto results = TrainAndEvaluate(
      estimator, {.input = LineInput(40, 8, 2)},  // ten steps
      {.input = LineInput(16, 8, 1), .exporters = {std::make_shared<LatestExporter>("each", RawX())}, .throttle = {}});
  ASSERT_EQ(results.status(), absl::OkStatus());
  EXPECT_THAT(Names(Dir("run/export/each")), SizeIs(2));
}

// Calls an exporter with evaluations of the given losses, and says for which it exported.
std::vector<bool> Exported(Estimator& estimator, Exporter& exporter, const std::string& path,
                           const std::vector<std::pair<int64_t, float>>& losses) {
  std::vector<bool> exported;
  for (const auto& [step, loss] : losses) {
    EvalResults results{.values = {{"loss", Tensor::Scalar(loss)}},
                        .global_step = step,
                        .checkpoint = estimator.LatestCheckpoint().value(),
                        .events_dir = estimator.EvalDir()};
    const auto writer = FileWriter::Create(results.events_dir).value();
    EXPECT_TRUE(writer->AddScalar("loss", loss, step).ok() && writer->Close().ok());
    const StatusOr<std::string> made = exporter.Export(estimator, path, results, false);
    EXPECT_EQ(made.status(), absl::OkStatus());
    exported.push_back(made.ok() && !made->empty());
  }
  return exported;
}

TEST_F(ExporterTest, BestIfTheLossIsSmallerThanEverAlsoAfterARestart) {
  Estimator estimator = Served();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 1}), absl::OkStatus());
  const std::string path = Dir("run/export/best");
  BestExporter first("best", RawX(), {.exports_to_keep = 3});
  EXPECT_THAT(Exported(estimator, first, path, {{1, 0.5f}, {2, 0.7f}, {3, 0.4f}, {4, 0.4f}, {5, 0.3f}, {6, NAN}}),
              ElementsAre(true, false, true, false, true, false));
  EXPECT_THAT(Names(path), SizeIs(3));
  // A new process, after one that was killed before it had written the loss.
  const auto writer = FileWriter::Create(estimator.EvalDir()).value();
  ASSERT_TRUE(writer->AddScalar("accuracy", 0.1, 100).ok() && writer->Close().ok());
  BestExporter second("best", RawX(), {.exports_to_keep = 3});
  EXPECT_THAT(Exported(estimator, second, path, {{7, 0.35f}, {8, 0.2f}}), ElementsAre(false, true));
  EXPECT_THAT(Names(path), SizeIs(3));
  // The events count only if there is an export.
  BestExporter elsewhere("other", RawX());
  EXPECT_THAT(Exported(estimator, elsewhere, Dir("run/export/other"), {{9, 0.9f}}), ElementsAre(true));
  BestExporter largest("largest", RawX(), {.compare = [](const EvalNumbers& best, const EvalNumbers& current) {
                         return current.at("loss") > best.at("loss");
                       }});
  EXPECT_THAT(Exported(estimator, largest, Dir("run/export/largest"), {{10, 0.1f}, {11, 0.3f}, {12, 0.2f}}),
              ElementsAre(true, true, false));
}

TEST_F(ExporterTest, MistakesInExportersAreNamed) {
  Estimator estimator = Served();
  const auto error = [&](std::vector<std::shared_ptr<Exporter>> exporters) {
    return std::string(TrainTo(estimator, 5, std::move(exporters)).status().message());
  };
  const auto named = [](const char* name) { return std::make_shared<FinalExporter>(name, RawX()); };
  EXPECT_THAT(error({nullptr}), HasSubstr("an exporter is null"));
  EXPECT_THAT(error({named("a/b")}), HasSubstr("'a/b' is not that of a folder"));
  EXPECT_THAT(error({named("a"), named("a")}), HasSubstr("two exporters are called a"));
  EXPECT_THAT(error({std::make_shared<LatestExporter>("none", RawX(), LatestExporterOptions{.exports_to_keep = 0})}),
              HasSubstr("exporter none: exports_to_keep is 0"));
}

// A process that exports until it is killed. It has no folder of its own, which would be left behind.
TEST(ExporterChild, Exports) {
  if (ChildProcess::Argument() == nullptr) GTEST_SKIP() << "run by ExportsAreWholeWheneverTheirProcessIsKilled";
  const RunConfigOptions options{.model_dir = ChildProcess::Argument(), .tf_random_seed = 1, .log_step_count_steps = 0};
  Estimator estimator = Estimator::Create(ServedLine, RunConfig::Of({}, options).value()).value();
  LatestExporter exporter("each", RawX(), {.exports_to_keep = 2});
  for (int i = 0; i < 1000; ++i) {
    const EvalResults results{.checkpoint = estimator.LatestCheckpoint().value()};
    ChildProcess::Say(absl::StrCat("export ", i));
    ASSERT_EQ(exporter.Export(estimator, JoinPath(options.model_dir, "export/each"), results, false).status(),
              absl::OkStatus());
  }
}

TEST_F(ExporterTest, ExportsAreWholeWheneverTheirProcessIsKilled) {
  Estimator estimator = Served();
  ASSERT_EQ(estimator.Train(LineInput(), {.steps = 1}), absl::OkStatus());
  const std::string path = Dir("run/export/each");
  for (const int kill_at : {0, 1, 2, 4, 6}) {
    ChildProcess child("ExporterChild.Exports", Dir());
    ASSERT_TRUE(child.Hears(absl::StrCat("export ", kill_at)));
    child.Kill();
    for (const std::string& name : Names(path)) {
      if (name[0] != '.') Predicted(JoinPath(path, name));
    }
  }
  // The next exporter removes what they left.
  LatestExporter exporter("each", RawX(), {.exports_to_keep = 2});
  ASSERT_TRUE(exporter.Export(estimator, path, {.checkpoint = estimator.LatestCheckpoint().value()}, true).ok());
  ASSERT_THAT(Names(path), SizeIs(2));
  for (const std::string& name : Names(path)) Predicted(JoinPath(path, name));
}

}  // namespace
}  // namespace millrace
