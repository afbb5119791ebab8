#include "millrace/api/rnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// ((5 i) mod 7 - 3) scale + shift
Tensor Pattern(const Shape& shape, float scale, float shift = 0) {
  Tensor t(DType::kFloat, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    t.data<float>()[i] = static_cast<float>(i * 5 % 7 - 3) * scale + shift;
  }
  return t;
}
Initializer PatternInit(float scale, float shift = 0) {
  return [=](const Scope& s, const Shape& shape, DType) { return ops::Const(s, Pattern(shape, scale, shift)); };
}
Output PatternInputs(const Scope& s) { return ops::Const(s, Pattern(Shape({2, 3, 2}), 0.3f)); }

MATCHER(IsClose, "") { return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= 2e-6f; }
void ExpectValues(const Tensor& got, const std::vector<float>& want) {
  EXPECT_THAT(Floats(got), Pointwise(IsClose(), want));
}
void ExpectSame(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  EXPECT_THAT(Floats(got), Pointwise(FloatNear(1e-5f), Floats(want)));
}

// Expected values are those of TensorFlow 1.15's equations.
const rnn::DynamicRnnOptions kPadded{.sequence_length = std::vector<int32_t>{3, 2}};

TEST(RnnCells, LstmGivesTensorFlowsValues) {
  for (const bool basic : {false, true}) {
    const Scope s = Scope::NewRoot();
    const rnn::CellPtr cell =
        basic
            ? rnn::BasicLstmCell(
                  2, {.kernel_initializer = PatternInit(0.1f, 0.05f), .bias_initializer = PatternInit(0.2f)})
            : rnn::LstmCell(2, {.kernel_initializer = PatternInit(0.1f, 0.05f), .bias_initializer = PatternInit(0.2f)});
    const rnn::Sequence r = rnn::DynamicRnn(s, cell, PatternInputs(s), kPadded);
    ASSERT_TRUE(s.ok()) << s.status();
    const Tensors got = RunOnce(s, {r.outputs, r.state.c(), r.state.h()});
    ASSERT_EQ(got.size(), 3);
    ExpectValues(got[0], {-0.025251f, -0.013439f, -0.011406f, -0.106959f, -0.011364f, -0.157894f, 0.019531f, -0.103102f,
                          0.017686f, -0.159782f, 0, 0});
    ExpectValues(got[1], {-0.027150f, -0.532150f, 0.039972f, -0.539390f});
    ExpectValues(got[2], {-0.011364f, -0.157894f, 0.017686f, -0.159782f});
  }
}

TEST(RnnCells, LstmWithPeepholesProjectionAndClippingGivesTensorFlowsValues) {
  const Scope s = Scope::NewRoot();
  // The initializer of a weight is told by its shape: kernel, peepholes, projection.
  const Initializer init = [](const Scope& scope, const Shape& shape, DType dtype) {
    if (shape.rank() == 1) return PatternInit(0.3f, 0.1f)(scope, shape, dtype);
    return (shape.dim(1) == 1 ? PatternInit(0.5f, 0.2f) : PatternInit(0.1f, 0.05f))(scope, shape, dtype);
  };
  const rnn::CellPtr cell = rnn::LstmCell(2, {.use_peepholes = true,
                                              .cell_clip = 0.2,
                                              .num_proj = 1,
                                              .forget_bias = 0.5,
                                              .kernel_initializer = init,
                                              .bias_initializer = PatternInit(0.2f)});
  const rnn::Sequence r = rnn::DynamicRnn(s, cell, PatternInputs(s), kPadded);
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors got = RunOnce(s, {r.outputs, r.state.c(), r.state.h()});
  ASSERT_EQ(got.size(), 3);
  ExpectValues(got[0], {0.017792f, -0.061071f, -0.059522f, -0.093958f, -0.085031f, 0});
  ExpectValues(got[1], {-0.016984f, -0.2f, 0.029102f, -0.2f});
  ExpectValues(got[2], {-0.059522f, -0.085031f});
}

TEST(RnnCells, GruAndBasicRnnGiveTensorFlowsValues) {
  const Scope s = Scope::NewRoot();
  const rnn::Sequence gru =
      rnn::DynamicRnn(s.WithOpName("gru"), rnn::GruCell(2, {.kernel_initializer = PatternInit(0.1f, 0.05f)}),
                      PatternInputs(s), kPadded);
  const rnn::Sequence basic = rnn::DynamicRnn(
      s.WithOpName("basic"),
      rnn::BasicRnnCell(2, {.kernel_initializer = PatternInit(0.1f, 0.05f), .bias_initializer = PatternInit(0.2f)}),
      PatternInputs(s), kPadded);
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors got = RunOnce(s, {gru.outputs, gru.state.tensor(), basic.outputs, basic.state.tensor()});
  ASSERT_EQ(got.size(), 4);
  ExpectValues(got[0], {0.070875f, -0.082924f, 0.049770f, -0.036271f, -0.014224f, 0.033970f, 0.007890f, 0.013140f,
                        -0.033120f, 0.051466f, 0, 0});
  ExpectValues(got[1], {-0.014224f, 0.033970f, -0.033120f, 0.051466f});
  ExpectValues(got[2], {-0.331934f, 0.084796f, -0.635397f, 0.396097f, -0.782658f, 0.367618f, -0.515359f, 0.430084f,
                        -0.740633f, 0.349764f, 0, 0});
  ExpectValues(got[3], {-0.782658f, 0.367618f, -0.740633f, 0.349764f});
}

TEST(RnnCells, VariablesHaveTensorFlowsNames) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Placeholder(s, DType::kFloat, {.shape = {-1, -1, 3}});
  rnn::DynamicRnn(s, rnn::BasicLstmCell(4), x);
  const Scope named = s.WithOpName("net");
  rnn::DynamicRnn(named,
                  rnn::MultiRnnCell({rnn::DropoutWrapper(rnn::LstmCell(4, {.use_peepholes = true, .num_proj = 3}),
                                                         {.output_keep_prob = 0.5}),
                                     rnn::GruCell(2)}),
                  x);
  rnn::BidirectionalDynamicRnn(s, rnn::BasicRnnCell(2), rnn::BasicRnnCell(2), x);
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<std::string> names;
  for (const Var& v : GlobalVariables(s)) names.push_back(v.var_name());
  const std::string lstm = "net/multi_rnn_cell/cell_0/lstm_cell/", gru = "net/multi_rnn_cell/cell_1/gru_cell/";
  EXPECT_THAT(names,
              ElementsAre("rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias", lstm + "kernel", lstm + "bias",
                          lstm + "w_f_diag", lstm + "w_i_diag", lstm + "w_o_diag", lstm + "projection/kernel",
                          gru + "gates/kernel", gru + "gates/bias", gru + "candidate/kernel", gru + "candidate/bias",
                          "bidirectional_rnn/fw/basic_rnn_cell/kernel", "bidirectional_rnn/fw/basic_rnn_cell/bias",
                          "bidirectional_rnn/bw/basic_rnn_cell/kernel", "bidirectional_rnn/bw/basic_rnn_cell/bias"));
}

// Whole sequences as one op or as a loop have the values and gradients of the unrolled network.
void ExpectDynamicIsStatic(const rnn::CellPtr& cell, bool padded, bool time_major) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(3);
  const int batch = 3, time = 4, depth = 5;
  const Output x = Output(Var(s, "x", {batch, time, depth}, init::RandomNormal()));
  Input length;
  if (padded) length = std::vector<int64_t>{4, 0, 2};
  const Output in = time_major ? ops::Transpose(s, x, {1, 0, 2}) : x;
  const rnn::Sequence dynamic = rnn::DynamicRnn(s, cell, in, {.sequence_length = length, .time_major = time_major});
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<Output> steps = ops::Unpack(s, x, time, {.axis = 1});
  const rnn::StaticSequence unrolled = rnn::StaticRnn(s, cell, steps, {.sequence_length = length});
  ASSERT_TRUE(s.ok()) << s.status();
  const Output stacked = ops::Pack(s, unrolled.outputs, {.axis = time_major ? 0 : 1});

  std::vector<Output> parameters = {x};
  for (const Var& v : TrainableVariables(s)) parameters.push_back(v);
  const auto all = [&](const Output& outputs, const rnn::State& state) {
    std::vector<Output> results = {outputs};
    Output loss = ops::Sum(s, ops::Sin(s, outputs), {0, 1, 2});
    for (const Output& t : state.Tensors()) {
      results.push_back(t);
      loss = loss + ops::Sum(s, ops::Sin(s, t), {0, 1}) * 0.5f;
    }
    for (const Gradient& g : Gradients(s, {loss}, parameters)) results.push_back(g.ToDense(s));
    return results;
  };
  const std::vector<Output> a = all(dynamic.outputs, dynamic.state), b = all(stacked, unrolled.state);
  ASSERT_TRUE(s.ok()) << s.status();
  ASSERT_EQ(a.size(), b.size());
  std::vector<Output> fetches = a;
  fetches.insert(fetches.end(), b.begin(), b.end());
  const Tensors got = RunOnce(s, fetches);
  ASSERT_EQ(got.size(), fetches.size());
  for (size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(got[i], got[a.size() + i]);
  }
}

TEST(DynamicRnn, HasTheValuesAndGradientsOfTheUnrolledNetwork) {
  const Initializer init = init::RandomNormal({.stddev = 0.4});
  for (const bool padded : {false, true}) {
    SCOPED_TRACE(padded);
    ExpectDynamicIsStatic(rnn::LstmCell(6, {.kernel_initializer = init}), padded, false);
    ExpectDynamicIsStatic(rnn::LstmCell(6, {.use_peepholes = true, .kernel_initializer = init}), padded, true);
    ExpectDynamicIsStatic(rnn::LstmCell(6, {.num_proj = 3, .kernel_initializer = init}), padded, false);
    ExpectDynamicIsStatic(rnn::GruCell(6, {.kernel_initializer = init}), padded, true);
    ExpectDynamicIsStatic(rnn::MultiRnnCell({rnn::LstmCell(5, {.kernel_initializer = init}),
                                             rnn::ResidualWrapper(rnn::GruCell(5, {.kernel_initializer = init}))}),
                          padded, false);
  }
}

TEST(DynamicRnn, TakesShapesThatAreKnownInTheStepOnly) {
  const Scope s = Scope::NewRoot();
  const Output x = ops::Placeholder(s, DType::kFloat, {.shape = {-1, -1, 2}});
  std::vector<Output> sums;
  const rnn::CellPtr lstm = rnn::LstmCell(3), gru = rnn::GruCell(3);
  for (const rnn::CellPtr& cell : {lstm, gru}) {
    const rnn::Sequence r = rnn::DynamicRnn(s, cell, x);
    const Output loss = ops::Sum(s, r.outputs, {0, 1, 2});
    sums.push_back(loss);
    sums.push_back(Gradients(s, {loss}, {x})[0].dense());
    sums.push_back(r.state.Tensors()[0]);
  }
  ASSERT_TRUE(s.ok()) << s.status();
  for (const auto& shape : {Shape({2, 5, 2}), Shape({1, 1, 2}), Shape({3, 0, 2})}) {
    const Tensors got = RunOnce(s, sums, {{x, Pattern(shape, 0.1f)}});
    ASSERT_EQ(got.size(), 6);
    EXPECT_EQ(got[1].shape(), shape);
    EXPECT_EQ(got[4].shape(), shape);
    EXPECT_EQ(got[2].shape(), Shape({shape.dim(0), 3}));
  }
}

TEST(DynamicRnn, ContinuesFromAState) {
  const Scope s = Scope::NewRoot();
  const rnn::CellPtr cell = rnn::MultiRnnCell({rnn::LstmCell(3), rnn::GruCell(2)});
  const Output x = ops::Const(s, Pattern(Shape({2, 4, 2}), 0.3f));
  const rnn::Sequence whole = rnn::DynamicRnn(s, cell, x);
  const rnn::Sequence first = rnn::DynamicRnn(s, cell, ops::Slice(s, x, {0, 0, 0}, {2, 3, 2}));
  const rnn::Sequence rest =
      rnn::DynamicRnn(s, cell, ops::Slice(s, x, {0, 3, 0}, {2, 1, 2}), {.initial_state = first.state});
  ASSERT_TRUE(s.ok()) << s.status();
  ASSERT_EQ(whole.state.parts().size(), 2);
  const Tensors got = RunOnce(s, {whole.state[0].c(), whole.state[0].h(), whole.state[1].tensor(), rest.state[0].c(),
                                  rest.state[0].h(), rest.state[1].tensor()});
  ASSERT_EQ(got.size(), 6);
  for (size_t i = 0; i < 3; ++i) ExpectSame(got[3 + i], got[i]);
  EXPECT_EQ(GlobalVariables(s).size(), 6) << "one cell has one set of weights";
}

TEST(DynamicRnn, NetworksOfOneVariableScopeShareTheirWeights) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(2);
  std::vector<Output> outputs;
  for (int i = 0; i < 2; ++i) {
    const rnn::CellPtr cell = rnn::MultiRnnCell({rnn::LstmCell(3), rnn::GruCell(2)});
    outputs.push_back(rnn::DynamicRnn(s.VariableScope("model", Reuse::kAuto), cell, PatternInputs(s)).outputs);
  }
  ASSERT_TRUE(s.ok()) << s.status();
  std::vector<std::string> names;
  for (const Var& v : GlobalVariables(s)) names.push_back(v.var_name());
  const std::string cells = "model/rnn/multi_rnn_cell/cell_";
  EXPECT_THAT(names, ElementsAre(cells + "0/lstm_cell/kernel", cells + "0/lstm_cell/bias",
                                 cells + "1/gru_cell/gates/kernel", cells + "1/gru_cell/gates/bias",
                                 cells + "1/gru_cell/candidate/kernel", cells + "1/gru_cell/candidate/bias"));
  const Tensors got = RunOnce(s, outputs);
  ASSERT_EQ(got.size(), 2);
  ExpectSame(got[0], got[1]);
}

TEST(BidirectionalDynamicRnn, ReadsEachSequenceFromItsEnd) {
  const Scope s = Scope::NewRoot();
  const auto cell = [] { return rnn::GruCell(2, {.kernel_initializer = PatternInit(0.1f, 0.05f)}); };
  const Output x = PatternInputs(s);
  const rnn::BidirectionalSequence both =
      rnn::BidirectionalDynamicRnn(s, cell(), cell(), x, {.sequence_length = std::vector<int32_t>{3, 2}});
  // The second sequence, of length 2, by hand: [x1, x0].
  const Output second = ops::Slice(s, x, {1, 0, 0}, {1, 2, 2});
  const rnn::Sequence turned = rnn::DynamicRnn(s, cell(), ops::ReverseV2(s, second, {1}));
  ASSERT_TRUE(s.ok()) << s.status();
  const Tensors got = RunOnce(s, {both.forward.outputs, both.backward.outputs, both.backward.state.tensor(),
                                  ops::ReverseV2(s, turned.outputs, {1}), turned.state.tensor()});
  ASSERT_EQ(got.size(), 5);
  EXPECT_NEAR(got[0].data<float>()[0], 0.070875f, 2e-6f);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got[1].data<float>()[6 + i], got[3].data<float>()[i], 1e-6f);
  EXPECT_THAT(std::vector<float>(got[1].data<float>() + 10, got[1].data<float>() + 12), Each(0.0f));
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(got[2].data<float>()[2 + i], got[4].data<float>()[i], 1e-6f);
}

TEST(DropoutWrapper, DropsInTrainingOnlyAndKeepsOneMaskIfVariational) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(1);
  const Output training = ops::Placeholder(s, DType::kBool, {.shape = PartialShape::Scalar()});
  const Output x = ops::Fill(s, {2, 6, 40}, 1.0);
  const auto wrapped = [&](bool variational, double state) {
    // Weights of 0 and a bias: all outputs are equal.
    const rnn::CellPtr cell =
        rnn::BasicRnnCell(40, {.kernel_initializer = init::Zeros(), .bias_initializer = init::Ones()});
    return rnn::DynamicRnn(s,
                           rnn::DropoutWrapper(cell, {.output_keep_prob = 0.5,
                                                      .state_keep_prob = state,
                                                      .training = training,
                                                      .variational_recurrent = variational}),
                           x)
        .outputs;
  };
  const std::vector<Output> outputs = {wrapped(false, 1), wrapped(true, 1), wrapped(false, 0.9), wrapped(true, 0.9)};
  ASSERT_TRUE(s.ok()) << s.status();
  const Operation init = GlobalVariablesInitializer(s);
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_TRUE(session.Run(init).ok());
  const float one = std::tanh(1.0f);
  StatusOr<Tensors> off = session.Run({{training, Tensor::Scalar(false)}}, outputs);
  ASSERT_TRUE(off.ok()) << off.status();
  for (const Tensor& t : *off) EXPECT_THAT(Floats(t), Each(FloatNear(one, 1e-6f)));
  StatusOr<Tensors> on = session.Run({{training, Tensor::Scalar(true)}}, outputs);
  ASSERT_TRUE(on.ok()) << on.status();
  for (size_t i = 0; i < outputs.size(); ++i) {
    SCOPED_TRACE(i);
    const float* const y = (*on)[i].data<float>();
    int zeros = 0, as_before = 0;
    for (int j = 0; j < 480; ++j) {
      EXPECT_TRUE(y[j] == 0 || std::abs(y[j] - 2 * one) < 1e-5f) << y[j];
      zeros += y[j] == 0;
      as_before += y[j] == y[j % 40];
    }
    EXPECT_GT(zeros, 100);
    EXPECT_LT(zeros, 380);
    EXPECT_EQ(as_before == 480, i % 2 == 1);
  }
}

TEST(DynamicRnn, MistakesNameTheNetworkAndTheThing) {
  const auto message = [](const std::function<void(const Scope&, const Output&)>& build) {
    const Scope s = Scope::NewRoot();
    build(s.SubScope("net"), ops::Placeholder(s, DType::kFloat, {.shape = {4, -1, 3}}));
    EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(s.status().message());
  };
  const auto cell = [] { return rnn::LstmCell(2); };
  EXPECT_THAT(message([&](const Scope& s, const Output&) { rnn::DynamicRnn(s, cell(), {{1.0}}); }),
              HasSubstr("net/rnn: the input"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) { rnn::DynamicRnn(s, rnn::GruCell(0), x); }),
              HasSubstr("net/rnn/gru_cell: the number of units is 0"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) {
                rnn::DynamicRnn(s, cell(), x, {.sequence_length = std::vector<int32_t>{1, 2}});
              }),
              HasSubstr("net/rnn: sequence_length is int32 [2], and must be int32 or int64 [4]"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) {
                rnn::DynamicRnn(s, cell(), x, {.initial_state = ops::Fill(s, {4, 2}, 0.0)});
              }),
              HasSubstr("the initial state has shape [4,2], but a state of size (2, 2)"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) {
                rnn::DynamicRnn(s, rnn::GruCell(2), x, {.initial_state = ops::Fill(s, {5, 2}, 0.0)});
              }),
              HasSubstr("batch of 4, but the initial state net/Fill:0 has one of 5"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) {
                const rnn::CellPtr shared = cell();
                rnn::DynamicRnn(s, shared, x);
                rnn::DynamicRnn(s, shared, ops::Fill(s, {4, 2, 7}, 0.0));
              }),
              HasSubstr("was built for inputs of float with 3 columns, and is now given float with 7"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) { rnn::DynamicRnn(s, rnn::ResidualWrapper(cell()), x); }),
              HasSubstr("adds inputs with 3 columns to outputs with 2"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) { rnn::DynamicRnn(s, rnn::MultiRnnCell({}), x); }),
              HasSubstr("at least one cell"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) {
                rnn::DynamicRnn(s, rnn::DropoutWrapper(cell(), {.input_keep_prob = 1.5}), x);
              }),
              HasSubstr("input_keep_prob is 1.5"));
  EXPECT_THAT(message([&](const Scope& s, const Output& x) { rnn::StaticRnn(s, cell(), {x}); }),
              HasSubstr("input 0 is float [4,?,3]"));
}

TEST(DynamicRnn, ALengthBeyondTheTimeStepsFailsTheStep) {
  const Scope s = Scope::NewRoot();
  const Output length = ops::Placeholder(s, DType::kInt64, {.shape = {-1}});
  const rnn::Sequence r = rnn::DynamicRnn(s, rnn::LstmCell(2), PatternInputs(s), {.sequence_length = length});
  ASSERT_TRUE(s.ok()) << s.status();
  const Operation init = GlobalVariablesInitializer(s);
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_TRUE(session.Run(init).ok());
  for (const auto& lengths : {std::vector<int64_t>{3, 4}, std::vector<int64_t>{-1, 2}}) {
    const StatusOr<Tensors> got = session.Run({{length, Tensor::FromVector(lengths)}}, {r.outputs});
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(got.status().ToString(), HasSubstr("rnn rnn: sequence_length must be between 0 and"));
  }
}

}  // namespace
}  // namespace millrace
