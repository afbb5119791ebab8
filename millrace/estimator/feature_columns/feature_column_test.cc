// Expected values are those of TensorFlow 2.15's tf.compat.v1.feature_column.
#include "millrace/estimator/feature_columns/feature_column.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

namespace fc = feature_column;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// Sets element i of each variable to i / 10, fills the tables and returns the value.
StatusOr<Tensor> Evaluate(const Scope& scope, const Output& fetch) {
  std::vector<Operation> assigns;
  for (const Var& variable : GlobalVariables(scope)) {
    Tensor value(DType::kFloat, variable.shape().AsShape());
    for (int64_t i = 0; i < value.num_elements(); ++i) value.data<float>()[i] = 0.1f * static_cast<float>(i);
    assigns.push_back(variable.Assign(scope, value));
  }
  const Operation tables = TablesInitializer(scope);
  MR_ASSIGN_OR_RETURN(ClientSession session, ClientSession::Create(scope));
  MR_RETURN_IF_ERROR(session.Run(tables));
  for (const Operation& assign : assigns) MR_RETURN_IF_ERROR(session.Run(assign));
  MR_ASSIGN_OR_RETURN(Tensors values, session.Run({fetch}));
  return values[0];
}

class FeatureColumnTest : public ::testing::Test {
 protected:
  FeatureColumnTest() {
    Add("age", Tensor::Of<float>({3, 1}, {17, 35, 70.5}));
    Add("pos", Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
    Add("color", Tensor::Of<std::string>({3, 1}, {"red", "blue", "pink"}));
    Add("id", Tensor::Of<int64_t>({3, 1}, {2, 0, 1}));
    Add("n", Tensor::Of<int64_t>({3, 1}, {7, -1, 123456}));
    Add("flat", Tensor::Of<int32_t>({3}, {2, 0, 1}));
    AddSparse("tags", Tensor::Of<std::string>({"x", "y", "x"}));
    AddSparse("w", Tensor::Of<float>({0.5, 2, 3}));
  }
  void Add(const std::string& name, const Tensor& value) { features_[name] = ops::Const(root_, value); }
  void AddSparse(const std::string& name, const Tensor& values) {
    SetSparseFeature(&features_, name,
                     {ops::Const(root_, Tensor::Of<int64_t>({3, 2}, {0, 0, 0, 1, 2, 0})), ops::Const(root_, values),
                      ops::Const(root_, Tensor::Of<int64_t>({3, 2}))});
  }
  void ExpectValues(const Output& result, const std::vector<float>& expected) {
    const StatusOr<Tensor> value = Evaluate(root_, result);
    ASSERT_EQ(value.status(), absl::OkStatus());
    EXPECT_THAT(Floats(*value), Pointwise(FloatNear(2e-6f), expected));
  }
  void ExpectInput(const std::vector<FeatureColumn>& columns, const std::vector<float>& expected) {
    ExpectValues(InputLayer(root_, features_, columns), expected);
  }
  void ExpectLinear(const std::vector<FeatureColumn>& columns, const std::vector<float>& expected) {
    ExpectValues(LinearModel(root_, features_, columns), expected);
  }
  std::vector<std::string> VariableNames() const {
    std::vector<std::string> names;
    for (const Var& variable : GlobalVariables(root_)) names.push_back(variable.var_name());
    return names;
  }
  // The error of an input layer or a linear model of the column, when it is built or run.
  std::string ErrorOf(const FeatureColumn& column, bool linear = false) {
    const Scope scope = Scope::NewRoot();
    OutputMap features;
    for (const auto& [name, tensor] : features_) features[name] = ops::Const(scope, RunOnce(root_, {tensor}).at(0));
    const Output result = linear ? LinearModel(scope, features, {column}) : InputLayer(scope, features, {column});
    if (!scope.ok()) return std::string(scope.status().message());
    return std::string(Evaluate(scope, result).status().message());
  }

  const Scope root_ = Scope::NewRoot();
  OutputMap features_;
  const FeatureColumn age_ = fc::Numeric("age");
  const FeatureColumn pos_ = fc::Numeric("pos", {.shape = Shape({2})});
  const FeatureColumn tags_ = fc::CategoricalWithHashBucket("tags", 10);
  const FeatureColumn color_ = fc::CategoricalWithVocabularyList("color", {"red", "green", "blue"});
  const FeatureColumn id_ = fc::CategoricalWithIdentity("id", 3);
  const FeatureColumn ages_ = fc::Bucketized(age_, {18, 35, 65});
  const FeatureColumn places_ = fc::Bucketized(pos_, {2.5, 4});
  const FeatureColumn weighted_ = fc::Weighted(tags_, "w");
};

TEST_F(FeatureColumnTest, NumbersAreNormalizedAndInTheOrderOfTheNames) {
  const FeatureColumn normal = fc::Numeric(
      "age", {.normalizer = [](const Scope& s, const Input& x) { return ops::RealDiv(s, ops::Sub(s, x, 10), 2); }});
  ExpectInput({pos_, normal}, {3.5, 1, 2, 12.5, 3, 4, 30.25, 5, 6});
}

TEST_F(FeatureColumnTest, NumbersOfAnyTypeAndRank) {
  Add("image", Tensor::Of<int32_t>({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
  ExpectInput({fc::Numeric("image", {.shape = Shape({2, 2})})}, {1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_F(FeatureColumnTest, BucketsIncludeTheirLowerBoundary) {
  ExpectInput({ages_, places_}, {1, 0, 0, 0, 1, 0, 0, 1, 0, 0,  //
                                 0, 0, 1, 0, 0, 1, 0, 0, 0, 1,  //
                                 0, 0, 0, 1, 0, 0, 1, 0, 0, 1});
}

TEST_F(FeatureColumnTest, VocabularyLists) { ExpectInput({fc::Indicator(color_)}, {1, 0, 0, 0, 0, 1, 0, 0, 0}); }

TEST_F(FeatureColumnTest, ValuesOutsideOfTheVocabularyGetHashedIds) {
  const FeatureColumn oov =
      fc::CategoricalWithVocabularyList("color", {"red", "green", "blue"}, {.num_oov_buckets = 4});
  ExpectInput({fc::Indicator(oov)}, {1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0});
}

TEST_F(FeatureColumnTest, VocabulariesOfIntegers) {
  const FeatureColumn few = fc::CategoricalWithVocabularyList("flat", Tensor::Of<int64_t>({1, 2}));
  ExpectInput({fc::Indicator(few)}, {0, 1, 0, 0, 1, 0});
}

TEST_F(FeatureColumnTest, VocabularyFiles) {
  const TempDirectory directory = TempDirectory::Make("feature_column_test").value();
  const std::string file = directory.File("colors.txt");
  std::ofstream(file) << "red\ngreen\nblue\n";
  ExpectInput({fc::Indicator(fc::CategoricalWithVocabularyFile("color", file, {.default_value = 1}))},
              {1, 0, 0, 0, 0, 1, 0, 1, 0});
  const FeatureColumn two = fc::CategoricalWithVocabularyFile("color", file, {.vocabulary_size = 2});
  ExpectInput({fc::Indicator(two)}, {1, 0, 0, 0, 0, 0});
  EXPECT_THAT(std::string(fc::CategoricalWithVocabularyFile("color", file, {.vocabulary_size = 4}).status().message()),
              HasSubstr("feature column 'color': vocabulary_size is 4, and the vocabulary file"));
}

TEST_F(FeatureColumnTest, HashesAreTensorFlows) {
  ExpectInput({fc::Indicator(tags_)}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0,  //
                                       0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                       1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
}

TEST_F(FeatureColumnTest, IntegersAreHashedAsTextAndMinusOneIsNoValue) {
  ExpectLinear({fc::CategoricalWithHashBucket("n", 100, {.dtype = DType::kInt64})}, {8.8, 0, 9.8});
}

TEST_F(FeatureColumnTest, IndicatorsOfWeightedIds) {
  ExpectInput({fc::Indicator(weighted_)}, {0.5, 0, 0, 0, 0, 2, 0, 0, 0, 0,  //
                                           0,   0, 0, 0, 0, 0, 0, 0, 0, 0,  //
                                           3,   0, 0, 0, 0, 0, 0, 0, 0, 0});
}

TEST_F(FeatureColumnTest, DenseWeightsBelongToTheIdsAtTheirPlaces) {
  Add("weight", Tensor::Of<float>({3, 1}, {0, 5, 2}));
  ExpectLinear({fc::Weighted(id_, "weight")}, {0, 0, 0.2});
}

TEST_F(FeatureColumnTest, EmbeddingsAreCombined) {
  ExpectInput({fc::Embedding(tags_, 2)}, {0.5, 0.6, 0, 0, 0, 0.1});
  ExpectInput({fc::Embedding(tags_, 2, {.combiner = "sum"})}, {1, 1.2, 0, 0, 0, 0.1});
  ExpectInput({fc::Embedding(tags_, 2, {.combiner = "sqrtn"})}, {0.707107, 0.848528, 0, 0, 0, 0.1});
  ExpectInput({fc::Embedding(weighted_, 2)}, {0.8, 0.9, 0, 0, 0, 0.1});
  ExpectInput({fc::Embedding(weighted_, 2, {.combiner = "sum"})}, {2, 2.25, 0, 0, 0, 0.3});
  ExpectInput({fc::Embedding(weighted_, 2, {.combiner = "sqrtn"})}, {0.970143, 1.09141, 0, 0, 0, 0.1});
  ExpectInput({fc::Embedding(tags_, 2, {.max_norm = 1})}, {0.336336, 0.41997, 0, 0, 0, 0.1});
  ExpectInput({fc::Embedding(color_, 2)}, {0, 0.1, 0.4, 0.5, 0, 0});
}

TEST_F(FeatureColumnTest, SharedEmbeddingsHaveOneTable) {
  ExpectInput(fc::SharedEmbedding({id_, fc::CategoricalWithIdentity("n", 3, {.default_value = 0})}, 2),
              {0.4, 0.5, 0, 0.1, 0, 0.1, 0, 0, 0.2, 0.3, 0, 0.1});
  EXPECT_THAT(VariableNames(), ElementsAre("input_layer/id_n_shared_embedding/embedding_weights"));
}

TEST_F(FeatureColumnTest, CrossesAreTensorFlows) {
  ExpectLinear({fc::Crossed({ages_, "color"}, 50)}, {1.5, 1.7, 3.7});
  ExpectLinear({fc::Crossed({"color", "tags", id_}, 50)}, {5.7, 0, 3.9});
  ExpectLinear({fc::Crossed({fc::Crossed({"color", "n"}, 7), places_}, 50, {.hash_key = 5})}, {6.8, 3.2, 7.7});
}

TEST_F(FeatureColumnTest, LinearModelsHaveTensorFlowsVariables) {
  ExpectLinear({age_, pos_, ages_, color_, tags_, weighted_, fc::Indicator(id_), fc::Embedding(id_, 2)},
               {1.95, 0.81, 1.03});
  EXPECT_THAT(VariableNames(), ElementsAre("linear_model/age/weights", "linear_model/age_bucketized/weights",
                                           "linear_model/color/weights", "linear_model/id_embedding/embedding_weights",
                                           "linear_model/id_embedding/weights", "linear_model/id_indicator/weights",
                                           "linear_model/pos/weights", "linear_model/tags/weights",
                                           "linear_model/tags_weighted_by_w/weights", "linear_model/bias_weights"));
}

TEST_F(FeatureColumnTest, TablesMayBePartitioned) {
  const Scope parts = root_.WithPartitioner(FixedSizePartitioner(3));
  const Output x = InputLayer(parts, features_, {fc::Embedding(tags_, 2), fc::Embedding(id_, 2)});
  EXPECT_THAT(VariableNames(), ElementsAre("input_layer/id_embedding/embedding_weights/part_0",
                                           "input_layer/id_embedding/embedding_weights/part_1",
                                           "input_layer/id_embedding/embedding_weights/part_2",
                                           "input_layer/tags_embedding/embedding_weights/part_0",
                                           "input_layer/tags_embedding/embedding_weights/part_1",
                                           "input_layer/tags_embedding/embedding_weights/part_2"));
  // Element i of each part is i / 10: the tags' rows 0 and 5 are row 0 of part 0 and row 1 of part 1.
  ExpectValues(x, {0, 0.1, 0.1, 0.2, 0, 0.1, 0, 0, 0, 0.1, 0, 0.1});
}

TEST_F(FeatureColumnTest, SequencesKeepTheirSteps) {
  const FeatureColumn words = fc::SequenceCategoricalWithHashBucket("tags", 10);
  const SequenceInput made =
      SequenceInputLayer(root_, features_, {fc::Embedding(words, 2), fc::SequenceNumeric("w", {.padding_value = -1})});
  ExpectValues(made.input, {0, 0.1, 0.5, 1, 1.1, 2,  //
                            0, 0, -1, 0, 0, -1,      //
                            0, 0.1, 3, 0, 0, -1});
  EXPECT_EQ(made.input.shape().dim(2), 3);
  const Tensor lengths = RunOnce(root_, {made.sequence_length})[0];
  EXPECT_EQ(std::vector<int64_t>(lengths.data<int64_t>(), lengths.data<int64_t>() + 3),
            (std::vector<int64_t>{2, 0, 1}));
  ExpectValues(
      SequenceInputLayer(
          root_, features_,
          {fc::Indicator(fc::SequenceCategoricalWithVocabularyList("tags", Tensor::Of<std::string>({"y", "x"})))})
          .input,
      {0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0});
  ExpectValues(SequenceInputLayer(root_, features_, {fc::SequenceNumeric("w", {.shape = Shape({2})})}).input,
               {0.5, 2, 0, 0, 3, 0});
}

TEST_F(FeatureColumnTest, SequencesOfDifferentLengthsFailTheStep) {
  SetSparseFeature(&features_, "long",
                   {ops::Const(root_, Tensor::Of<int64_t>({1, 2}, {1, 0})), ops::Const(root_, Tensor::Of<float>({1})),
                    ops::Const(root_, Tensor::Of<int64_t>({3, 2}))});
  const SequenceInput made =
      SequenceInputLayer(root_, features_, {fc::SequenceNumeric("long"), fc::SequenceNumeric("w")});
  EXPECT_THAT(std::string(Evaluate(root_, made.input).status().message()),
              HasSubstr("feature column w: the sequences have other lengths"));
}

TEST_F(FeatureColumnTest, ExamplesAreParsedAsTheColumnsNeedThem) {
  const std::vector<FeatureColumn> columns = {fc::Numeric("age", {.default_value = Tensor::Scalar(30.0f)}),
                                              fc::Indicator(color_), fc::Crossed({"color", "city"}, 10)};
  const ParseSpec spec = MakeParseExampleSpec(columns).value();
  ASSERT_EQ(spec.size(), 3u);
  EXPECT_EQ(spec.at("age"), FixedLenFeature(DType::kFloat, Shape({1}), Tensor::Of<float>({30})));
  EXPECT_EQ(spec.at("color"), VarLenFeature(DType::kString));
  // Example{features{feature{key: "color" value{bytes_list{value: "blue"}}}}}, and an empty one.
  const std::string blue(
      "\x0a\x13\x0a\x11\x0a\x05"
      "color\x12\x08\x0a\x06\x0a\x04"
      "blue",
      21);
  const OutputMap parsed = ParseExamples(root_, Tensor::Of<std::string>({blue, ""}), spec);
  ExpectValues(InputLayer(root_, parsed, {columns[0], columns[1]}), {30, 0, 0, 1, 30, 0, 0, 0});
  const OutputMap strict = ParseExamples(root_, Tensor::Of<std::string>({blue}), MakeParseExampleSpec({age_}).value());
  EXPECT_THAT(std::string(Evaluate(root_, strict.at("age")).status().message()), HasSubstr("age"));
  EXPECT_THAT(std::string(MakeParseExampleSpec({age_, fc::CategoricalWithIdentity("age", 3)}).status().message()),
              HasSubstr("feature column 'age': the feature 'age' is needed in another form"));
}

TEST_F(FeatureColumnTest, EmbeddingsBeginWithACheckpoint) {
  const TempDirectory directory = TempDirectory::Make("feature_column_test").value();
  const std::string prefix = directory.File("model");
  {
    const Scope scope = Scope::NewRoot();
    const Var table(scope, "words", Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6}));
    const Operation init = GlobalVariablesInitializer(scope);
    Saver saver(scope, {});
    ClientSession session = ClientSession::Create(scope).value();
    ASSERT_EQ(session.Run(init), absl::OkStatus());
    ASSERT_EQ(saver.Save(&session, prefix).status(), absl::OkStatus());
  }
  const auto from = [&](const std::string& name) {
    return fc::Embedding(id_, 2, {.ckpt_to_load_from = directory.path(), .tensor_name_in_ckpt = name});
  };
  const Output x = InputLayer(root_, features_, {from("words")});
  ASSERT_EQ(root_.status(), absl::OkStatus());
  EXPECT_THAT(Floats(RunOnce(root_, {x})[0]), ElementsAre(5, 6, 1, 2, 3, 4));
  EXPECT_THAT(ErrorOf(from("letters")), HasSubstr("feature column 'id_embedding': "));
}

TEST_F(FeatureColumnTest, WhatIsDescribedWronglyIsNamed) {
  const auto error = [](const FeatureColumn& column) { return std::string(column.status().message()); };
  EXPECT_THAT(error(fc::Bucketized(age_, {3, 2})),
              HasSubstr("feature column 'age_bucketized': the boundaries do not increase: 3 is followed by 2"));
  EXPECT_THAT(error(fc::Bucketized(age_, {})), HasSubstr("no boundaries"));
  EXPECT_THAT(error(fc::Bucketized(tags_, {1})), HasSubstr("'tags' is not a numeric column"));
  EXPECT_THAT(error(fc::Bucketized(fc::Numeric("m", {.shape = Shape({2, 2})}), {1})), HasSubstr("[2,2]"));
  EXPECT_THAT(error(fc::Numeric("")), HasSubstr("has no key"));
  EXPECT_THAT(error(fc::Numeric("x", {.shape = Shape({0})})), HasSubstr("feature column 'x': has shape [0]"));
  EXPECT_THAT(error(fc::Numeric("x", {.dtype = DType::kString})), HasSubstr("not a number's"));
  EXPECT_THAT(error(fc::Numeric("x", {.shape = Shape({2}), .default_value = Tensor::Of<float>({1, 2, 3})})),
              HasSubstr("default_value has shape [3]"));
  EXPECT_THAT(error(fc::CategoricalWithIdentity("x", 0)), HasSubstr("num_buckets is 0"));
  EXPECT_THAT(error(fc::CategoricalWithIdentity("x", 3, {.default_value = 3})), HasSubstr("not in [0, 3)"));
  EXPECT_THAT(error(fc::CategoricalWithHashBucket("x", -1)), HasSubstr("hash_bucket_size is -1"));
  EXPECT_THAT(error(fc::CategoricalWithHashBucket("x", 3, {.dtype = DType::kFloat})), HasSubstr("neither string"));
  EXPECT_THAT(error(fc::CategoricalWithVocabularyList("x", {"a", "b", "a"})),
              HasSubstr("'x': the vocabulary has 'a' twice"));
  EXPECT_THAT(error(fc::CategoricalWithVocabularyList("x", std::vector<std::string>())), HasSubstr("shape [0]"));
  EXPECT_THAT(error(fc::CategoricalWithVocabularyList("x", {"a"}, {.default_value = 0, .num_oov_buckets = 1})),
              HasSubstr("give one of them"));
  EXPECT_THAT(error(fc::CategoricalWithVocabularyList("x", {"a"}, {.default_value = 1})), HasSubstr("has 1 values"));
  EXPECT_THAT(error(fc::CategoricalWithVocabularyFile("x", "/nonexistent/words")),
              HasSubstr("feature column 'x': the vocabulary file /nonexistent/words cannot be read"));
  EXPECT_THAT(error(fc::Weighted(age_, "w")), HasSubstr("'age' is not a categorical column"));
  EXPECT_THAT(error(fc::Crossed({"color"}, 10)), HasSubstr("needs at least two"));
  EXPECT_THAT(error(fc::Crossed({"color", tags_}, 10)), HasSubstr("'tags' cannot be crossed"));
  EXPECT_THAT(error(fc::Crossed({"color", age_}, 10)), HasSubstr("'age' is not a categorical column"));
  EXPECT_THAT(error(fc::Crossed({"color", "id"}, 0)), HasSubstr("feature column 'color_X_id': hash_bucket_size is 0"));
  EXPECT_THAT(error(fc::Indicator(age_)), HasSubstr("feature column 'age_indicator'"));
  EXPECT_THAT(error(fc::Embedding(tags_, 0)), HasSubstr("feature column 'tags_embedding': the dimension is 0"));
  EXPECT_THAT(error(fc::Embedding(tags_, 2, {.combiner = "max"})), HasSubstr("the combiner 'max'"));
  EXPECT_THAT(error(fc::Embedding(tags_, 2, {.ckpt_to_load_from = "x"})), HasSubstr("tensor_name_in_ckpt"));
  EXPECT_THAT(error(fc::Embedding(tags_, 2, {.max_norm = 0})), HasSubstr("max_norm is 0"));
  EXPECT_THAT(error(fc::Embedding(fc::CategoricalWithIdentity("x", 0), 2)), HasSubstr("'x': num_buckets is 0"));
}

TEST_F(FeatureColumnTest, WhatDoesNotFitTheFeaturesIsNamed) {
  EXPECT_THAT(ErrorOf(fc::Numeric("height")), HasSubstr("feature column 'height': there is no feature 'height'; the "
                                                        "features are: age, color"));
  EXPECT_THAT(ErrorOf(fc::Numeric("color")), HasSubstr("feature column 'color': the feature 'color' has type string"));
  EXPECT_THAT(ErrorOf(fc::Numeric("pos")), HasSubstr("has shape [3,2], and the column is of shape [1]"));
  EXPECT_THAT(ErrorOf(fc::Numeric("w")), HasSubstr("is a sparse tensor"));
  EXPECT_THAT(ErrorOf(fc::CategoricalWithHashBucket("id", 3), true),
              HasSubstr("'id' has type int64, and must be string"));
  EXPECT_THAT(ErrorOf(fc::CategoricalWithIdentity("color", 3), true), HasSubstr("and must be an integer type"));
  EXPECT_THAT(ErrorOf(fc::CategoricalWithIdentity("id", 2), true),
              HasSubstr("feature column id: ids must be in [0, 2)"));
  EXPECT_THAT(ErrorOf(tags_), HasSubstr("feature column 'tags': is not dense"));
  EXPECT_THAT(ErrorOf(fc::Embedding(fc::SequenceCategoricalWithHashBucket("tags", 3), 2)),
              HasSubstr("use SequenceInputLayer"));
  EXPECT_THAT(ErrorOf(fc::SequenceNumeric("w"), true), HasSubstr("neither dense nor categorical"));
  EXPECT_THAT(ErrorOf(fc::Weighted(id_, "color"), true), HasSubstr("the weights 'color' have type string"));
  EXPECT_THAT(ErrorOf(fc::Crossed({"color", "age"}, 5), true), HasSubstr("only strings and integers are crossed"));
  const Scope scope = Scope::NewRoot();
  InputLayer(scope, {}, {age_, fc::Numeric("age")});
  EXPECT_THAT(std::string(scope.status().message()), HasSubstr("feature column 'age': there are two of that name"));
}

}  // namespace
}  // namespace millrace
