// Variables by name: variable scopes, getters, creators and partitioners.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<std::string> Names(const std::vector<Var>& variables) {
  std::vector<std::string> names;
  for (const Var& variable : variables) names.push_back(variable.var_name());
  return names;
}

Output Features(const Scope& scope) { return ops::Const(scope, {{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}}); }

// Two layers, the first without a name.
Output Model(const Scope& scope, const Output& x) {
  return layers::Dense(scope.WithOpName("out"), layers::Dense(scope, x, 4), 2);
}

std::string Error(const std::function<void(const Scope&)>& build, absl::StatusCode code) {
  const Scope root = Scope::NewRoot();
  build(root);
  EXPECT_EQ(root.status().code(), code) << root.status();
  return std::string(root.status().message());
}

TEST(VariableScope, TwoCallsOfALayerShareItsWeights) {
  const Scope root = Scope::NewRoot();
  root.SetRandomSeed(1);
  const Output x = Features(root);
  const Scope s = root.VariableScope("net", Reuse::kAuto);
  const Output a = layers::Dense(s.WithOpName("d"), x, 2);
  const Output b = layers::Dense(s.WithOpName("d"), x, 2);
  const Output other = layers::Dense(s, x, 2);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_THAT(Names(GlobalVariables(root)),
              ElementsAre("net/d/kernel", "net/d/bias", "net/dense/kernel", "net/dense/bias"));
  EXPECT_NE(a.node(), b.node());
  const Tensors r = RunOnce(root, {a, b, other});
  ASSERT_EQ(r.size(), 3);
  EXPECT_EQ(Floats(r[0]), Floats(r[1]));
  EXPECT_NE(Floats(r[0]), Floats(r[2]));
}

TEST(VariableScope, AModelBuiltTwiceHasOneSetOfVariables) {
  const Scope root = Scope::NewRoot();
  root.SetRandomSeed(1);
  const Output x = Features(root);
  const Output a = Model(root.VariableScope("model", Reuse::kAuto), x);
  const Output b = Model(root.VariableScope("model", Reuse::kAuto), x);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_THAT(Names(GlobalVariables(root)),
              ElementsAre("model/dense/kernel", "model/dense/bias", "model/out/kernel", "model/out/bias"));
  EXPECT_THAT(a.name(), HasSubstr("model/out/"));
  EXPECT_THAT(b.name(), HasSubstr("model_1/out/"));
  const Tensors r = RunOnce(root, {a, b});
  ASSERT_EQ(r.size(), 2);
  EXPECT_EQ(Floats(r[0]), Floats(r[1]));
}

TEST(VariableScope, GradientsOfSharedWeightsAddUp) {
  const Scope root = Scope::NewRoot();
  const Scope s = root.VariableScope("s", Reuse::kAuto);
  const Var a(s, "w", {2}, init::Ones()), b(s, "w", {2}, init::Ones());
  EXPECT_FALSE(a.reused());
  EXPECT_TRUE(b.reused());
  EXPECT_EQ(a.handle().node(), b.handle().node());
  const std::vector<Gradient> gradients = Gradients(root, {a * 2 + b * 3}, {a});
  const Tensors r = RunOnce(root, {gradients[0].dense()});
  ASSERT_EQ(r.size(), 1);
  EXPECT_THAT(Floats(r[0]), ElementsAre(5, 5));
}

TEST(VariableScope, WithoutOneEachCallMakesNewVariables) {
  const Scope root = Scope::NewRoot();
  const Output x = Features(root);
  Model(root.SubScope("model"), x);
  Model(root.SubScope("model"), x);
  const Var first(root, "v", {1}, init::Zeros()), second(root, "v", {1}, init::Zeros());
  EXPECT_EQ(GlobalVariables(root).size(), 10);
  EXPECT_EQ(second.var_name(), "v_1");
  EXPECT_FALSE(second.reused());
}

TEST(VariableScope, AnUnknownNameIsAnErrorWhereOnlyReuseIsAllowed) {
  EXPECT_THAT(Error([](const Scope& root) { Var(root.VariableScope("a", Reuse::kYes), "w", {2}, init::Zeros()); },
                    absl::StatusCode::kNotFound),
              HasSubstr("variable a/w does not exist"));
}

TEST(VariableScope, ASecondVariableOfTheNameIsAnErrorWithoutReuse) {
  const auto twice = [](const Scope& root) {
    const Output x = Features(root);
    Model(root.VariableScope("model"), x);
    Model(root.VariableScope("model"), x);
  };
  const std::string message = Error(twice, absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(message, HasSubstr("variable model/dense/kernel exists already"));
  EXPECT_THAT(message, HasSubstr("kAuto"));
}

TEST(VariableScope, ReuseWithAnotherShapeOrTypeShowsBoth) {
  const auto reuse = [](const Shape& shape, const VarOptions& options) {
    return Error(
        [&](const Scope& root) {
          Var(root.VariableScope("a"), "w", {2, 3}, init::Zeros());
          Var(root.VariableScope("a", Reuse::kYes), "w", shape, init::Zeros(), options);
        },
        absl::StatusCode::kInvalidArgument);
  };
  EXPECT_THAT(reuse({2, 4}, {}), HasSubstr("variable a/w is float[2,3], and cannot be reused as float[2,4]"));
  EXPECT_THAT(reuse({2, 3}, {.dtype = DType::kDouble}),
              HasSubstr("is float[2,3], and cannot be reused as double[2,3]"));
  EXPECT_THAT(reuse({2, 3}, {.local = true}), HasSubstr("reused as a local float[2,3]"));
  EXPECT_THAT(Error(
                  [](const Scope& root) {
                    Var(root.WithReuse(Reuse::kAuto), "n", 1, {.dtype = DType::kInt64});
                    Var(root.WithReuse(Reuse::kAuto), "n", 1.5);
                  },
                  absl::StatusCode::kInvalidArgument),
              HasSubstr("int64[], and cannot be reused as float[]"));
}

TEST(VariableScope, ReuseIsInherited) {
  const Scope root = Scope::NewRoot();
  const Var made(root.VariableScope("a").VariableScope("b"), "w", {2}, init::Zeros());
  EXPECT_EQ(made.var_name(), "a/b/w");
  const Scope again = root.VariableScope("a", Reuse::kYes);
  const Var by_scope(again.VariableScope("b"), "w", {2}, init::Zeros());
  const Var by_sub_scope(again.SubScope("b"), "w", {2}, init::Zeros());
  EXPECT_TRUE(by_scope.reused() && by_sub_scope.reused()) << root.status();
  EXPECT_EQ(by_sub_scope.handle().node(), made.handle().node());
}

TEST(VariableScope, LayersWithoutANameAreCountedAnewInEachScope) {
  const Scope root = Scope::NewRoot();
  const Output x = Features(root);
  const auto two = [&](const Scope& s) { layers::Dense(s, layers::Dense(s, x, 3), 3); };
  two(root.VariableScope("a", Reuse::kAuto));
  two(root.VariableScope("a", Reuse::kAuto));
  const Scope b = root.VariableScope("b");
  layers::Dense(b.WithOpName("dense"), x, 3, {.use_bias = false});
  layers::Dense(b, x, 3, {.use_bias = false});
  EXPECT_THAT(Names(GlobalVariables(root)), ElementsAre("a/dense/kernel", "a/dense/bias", "a/dense_1/kernel",
                                                        "a/dense_1/bias", "b/dense/kernel", "b/dense_1/kernel"))
      << root.status();
}

TEST(VariableScope, FindsVariablesThatWereMadeWithoutOne) {
  const Scope root = Scope::NewRoot();
  const Var w(root.SubScope("layer"), "w", {2}, init::Zeros());
  const Var again(root.WithReuse(Reuse::kYes).SubScope("layer"), "w", {2}, init::Zeros());
  EXPECT_EQ(again.handle().node(), w.handle().node()) << root.status();
  EXPECT_EQ(GlobalVariables(root).size(), 1);
}

TEST(VariableScope, ANameThatAnotherNodeHasIsAnError) {
  const auto build = [](const Scope& root) {
    ops::Const(root.WithOpName("w"), 1.0);
    Var(root.WithReuse(Reuse::kAuto), "w", {2}, init::Zeros());
  };
  EXPECT_THAT(Error(build, absl::StatusCode::kAlreadyExists), HasSubstr("variable w: another node"));
}

TEST(VariableScope, OptimizersMakeTheirSlotsInAScopeThatReuses) {
  const Scope root = Scope::NewRoot();
  const Output x = Features(root);
  layers::Dense(root.VariableScope("a"), x, 1, {.use_bias = false});
  const Scope again = root.VariableScope("a", Reuse::kYes);
  const Output y = layers::Dense(again, x, 1, {.use_bias = false});
  optimizers::Adam({.learning_rate = 0.1})
      .Minimize(again, losses::MeanSquaredError(again, {{1.0}, {1.0}}, y), {.global_step = GlobalStep(again)});
  EXPECT_THAT(Names(GlobalVariables(root)),
              UnorderedElementsAre("a/dense/kernel", "global_step", "a/dense/kernel/Adam", "a/dense/kernel/Adam_1",
                                   "a_1/beta1_power", "a_1/beta2_power"))
      << root.status();
}

TEST(VariableScope, AReusedKernelIsRegularizedOnce) {
  const Scope root = Scope::NewRoot();
  const Scope s = root.VariableScope("s", Reuse::kAuto);
  for (int i = 0; i < 2; ++i)
    layers::Dense(s.WithOpName("d"), Features(root), 2, {.kernel_initializer = init::Ones(), .l2 = 1});
  const Tensors r = RunOnce(root, {losses::RegularizationLoss(root)});
  ASSERT_EQ(r.size(), 1);
  EXPECT_EQ(r[0].scalar<float>(), 3);  // six ones, squared and halved
}

TEST(VariableScope, TrainingAndInferenceShareMovingAverages) {
  const Scope root = Scope::NewRoot();
  const Output x = ops::Const(root, {{1.0}, {3.0}});
  layers::BatchNorm(root.VariableScope("n"), x, true, {.momentum = 0});
  const Output inferred =
      layers::BatchNorm(root.VariableScope("n", Reuse::kYes), ops::Const(root, {{2.0}, {2.0}}), false);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_EQ(GlobalVariables(root).size(), 4);
  EXPECT_EQ(UpdateOps(root).size(), 2);
  const Operation update = Group(root, UpdateOps(root)), init = GlobalVariablesInitializer(root);
  ClientSession session = ClientSession::Create(root).value();
  ASSERT_TRUE(session.Run(init).ok());
  ASSERT_TRUE(session.Run(update).ok());
  EXPECT_THAT(Floats(session.Run({inferred}).value()[0]), ElementsAre(0, 0));
}

TEST(VariableCreator, TheInnermostIsCalledFirstAndMayChangeWhatIsMade) {
  std::vector<std::string> calls;
  const auto creator = [&](const std::string& name) -> VariableFunction {
    return [&calls, name](const Scope& scope, const VariableRequest& request, const NextVariable& next) {
      calls.push_back(name + ":" + request.name);
      VariableRequest changed = request;
      changed.name += "_" + name;
      changed.options.trainable = false;
      return next(scope.WithDevice("/device:CPU:1"), changed);
    };
  };
  const Scope root = Scope::NewRoot();
  const Scope s = root.WithVariableCreator(creator("outer")).WithVariableCreator(creator("inner"));
  const Var w(s.SubScope("a"), "w", {2}, init::Ones());
  const Var plain(root, "plain", {2}, init::Ones());
  EXPECT_THAT(calls, ElementsAre("inner:a/w", "outer:a/w_inner"));
  EXPECT_EQ(w.var_name(), "a/w_inner_outer") << root.status();
  EXPECT_FALSE(w.trainable());
  EXPECT_THAT(w.handle().node()->requested_device(), HasSubstr("CPU:1"));
  EXPECT_THAT(plain.handle().node()->requested_device(), IsEmpty());
}

// What a strategy does: a variable has a copy on each device, with the same initial value.
TEST(VariableCreator, CanMakeCopiesOnOtherDevicesThatAGetterThenChooses) {
  std::map<const Node*, Var> copies;
  const Scope root = Scope::NewRoot();
  root.SetRandomSeed(1);
  const Scope mirrored =
      root.WithVariableCreator([&](const Scope& scope, const VariableRequest& request, const NextVariable& next) {
        const Var first = next(scope.WithDevice("/device:CPU:0"), request);
        VariableRequest copy = request;
        copy.name += "/replica_1";
        copy.options.trainable = false;
        copy.initializer = [first](const Scope&, const Shape&, DType) { return first.initial_value(); };
        copies[first.handle().node()] = next(scope.WithDevice("/device:CPU:1"), copy);
        return first;
      });
  const Scope second =
      mirrored.WithVariableGetter([&](const Scope& scope, const VariableRequest& request, const NextVariable& next) {
        return copies[next(scope, request).handle().node()];
      });
  const Output x = Features(root);
  const Output y = layers::Dense(mirrored.VariableScope("net"), x, 2, {.use_bias = false});
  const Output y1 = layers::Dense(second.VariableScope("net", Reuse::kYes), x, 2, {.use_bias = false});
  const Var step = GlobalStep(mirrored);
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_THAT(Names(GlobalVariables(root)),
              ElementsAre("net/dense/kernel", "net/dense/kernel/replica_1", "global_step", "global_step/replica_1"));
  EXPECT_THAT(Names(TrainableVariables(root)), ElementsAre("net/dense/kernel"));
  EXPECT_EQ(step.var_name(), "global_step");
  EXPECT_EQ(GlobalStep(root).handle().node(), step.handle().node());
  EXPECT_NE(y.node()->input(1).node, y1.node()->input(1).node);
  const Operation init = GlobalVariablesInitializer(root);
  ClientSession session = ClientSession::Create(root, {.cpu_devices = 2}).value();
  ASSERT_TRUE(session.Run(init).ok());
  const Tensors r = session.Run({y, y1}).value();
  EXPECT_EQ(Floats(r[0]), Floats(r[1]));
}

TEST(VariableCreator, IsNotCalledForAVariableThatIsReused) {
  int calls = 0;
  const Scope root = Scope::NewRoot();
  const Scope s =
      root.WithVariableCreator([&](const Scope& scope, const VariableRequest& request, const NextVariable& next) {
            ++calls;
            VariableRequest renamed = request;
            renamed.name = "renamed";
            return next(scope, renamed);
          })
          .WithReuse(Reuse::kAuto);
  const Var first(s, "w", {2}, init::Ones()), second(s, "w", {2}, init::Ones());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(first.var_name(), "renamed") << root.status();
  EXPECT_EQ(second.handle().node(), first.handle().node());
}

TEST(VariableCreator, MayMakeVariablesOfItsOwn) {
  const Scope root = Scope::NewRoot();
  const Scope s =
      root.WithVariableCreator([](const Scope& scope, const VariableRequest& request, const NextVariable& next) {
        Var(scope, "count", 0, {.dtype = DType::kInt64, .trainable = false});
        return next(scope, request);
      });
  const Var w(s, "w", {1}, init::Ones());
  EXPECT_THAT(Names(GlobalVariables(root)), ElementsAre("count", "w")) << root.status();
}

TEST(VariableGetter, IsCalledForEachRequest) {
  std::vector<std::string> asked;
  const Scope root = Scope::NewRoot();
  const Scope s =
      root.WithReuse(Reuse::kAuto)
          .WithVariableGetter([&](const Scope& scope, const VariableRequest& request, const NextVariable& next) {
            asked.push_back(request.name + request.shape.ToString());
            return next(scope, request);
          });
  const Var a(s, "w", {2}, init::Ones()), b(s, "w", {2}, init::Ones());
  EXPECT_THAT(asked, ElementsAre("w[2]", "w[2]"));
  EXPECT_TRUE(b.reused());
}

// Weights of one type, computation in another: the getter keeps a float variable and gives its value as half.
TEST(VariableGetter, CanGiveAnotherTensorForTheValue) {
  const Scope root = Scope::NewRoot();
  const Scope s =
      root.WithVariableGetter([](const Scope& scope, const VariableRequest& request, const NextVariable& next) {
        VariableRequest stored = request;
        stored.options.dtype = DType::kFloat;
        const Var variable = next(scope, stored);
        return variable.WithValue(ops::Cast(scope, variable, request.options.dtype));
      });
  const Var w(s, "w", {2}, init::Ones(), {.dtype = DType::kHalf});
  const Operation set = w.Assign(root, {2.0, 3.0});
  EXPECT_EQ(w.dtype(), DType::kHalf);
  ASSERT_EQ(TrainableVariables(root).size(), 1) << root.status();
  EXPECT_EQ(TrainableVariables(root)[0].dtype(), DType::kFloat);
  const Tensors r = RunOnce(root, {w.Read(root.WithControlDependencies({set}))});
  ASSERT_EQ(r.size(), 1) << root.status();
  EXPECT_THAT(Floats(r[0]), ElementsAre(2, 3));
}

TEST(VariableFunctions, MistakesAreTold) {
  const VariableFunction nothing = [](const Scope&, const VariableRequest&, const NextVariable&) { return Var(); };
  const auto ask = [](const Scope& s) { Var(s, "w", {1}, init::Ones()); };
  EXPECT_THAT(
      Error([&](const Scope& root) { ask(root.WithVariableCreator(nothing)); }, absl::StatusCode::kInvalidArgument),
      HasSubstr("creator of scope '' returned no variable for w"));
  EXPECT_THAT(
      Error([&](const Scope& root) { ask(root.WithVariableGetter(nothing)); }, absl::StatusCode::kInvalidArgument),
      HasSubstr("getter"));
  EXPECT_THAT(
      Error([&](const Scope& root) { ask(root.WithVariableCreator(nullptr)); }, absl::StatusCode::kInvalidArgument),
      HasSubstr("null"));
}

TEST(Partitioner, OfTheScopeCutsTheWeightsOfLayers) {
  const Scope root = Scope::NewRoot();
  const Output x = Features(root);
  const auto dense = [&](const Scope& s) {
    return layers::Dense(s, x, 2, {.kernel_initializer = init::Constant({{1, 2}, {3, 4}, {5, 6}}), .l2 = 1});
  };
  const Scope s = root.WithPartitioner(FixedSizePartitioner(2));
  const Output cut = dense(s.VariableScope("cut")), again = dense(s.VariableScope("cut", Reuse::kYes));
  const Output whole = dense(s.WithPartitioner(nullptr).SubScope("whole"));
  const Var plain(s, "plain", {4}, init::Zeros());
  ASSERT_TRUE(root.ok()) << root.status();
  EXPECT_THAT(Names(GlobalVariables(root)),
              ElementsAre("cut/dense/kernel/part_0", "cut/dense/kernel/part_1", "cut/dense/bias/part_0",
                          "cut/dense/bias/part_1", "whole/dense/kernel", "whole/dense/bias", "plain"));
  const Tensors r = RunOnce(root, {cut, again, whole, losses::RegularizationLoss(root)});
  ASSERT_EQ(r.size(), 4);
  EXPECT_EQ(Floats(r[0]), Floats(r[2]));
  EXPECT_EQ(Floats(r[1]), Floats(r[2]));
  EXPECT_EQ(r[3].scalar<float>(), 91);  // the squares of 1 to 6, once for each of the two layers, halved
}

TEST(Partitioner, ReuseWithAnotherPartitionIsAnError) {
  const auto reuse = [](const Partitioner& first, const Partitioner& second) {
    return [=](const Scope& root) {
      const Scope s = root.VariableScope("s", Reuse::kAuto);
      PartitionedVar(s.WithPartitioner(first), "w", {4, 3}, init::Zeros());
      PartitionedVar(s.WithPartitioner(second), "w", {4, 3}, init::Zeros());
    };
  };
  const Partitioner two = FixedSizePartitioner(2), three = FixedSizePartitioner(3);
  EXPECT_THAT(Error(reuse(two, three), absl::StatusCode::kInvalidArgument),
              HasSubstr("s/w/part_1 is float[2,3], and cannot be reused as float[1,3]"));
  EXPECT_THAT(Error(reuse(two, nullptr), absl::StatusCode::kInvalidArgument), HasSubstr("s/w is partitioned"));
  EXPECT_THAT(Error(reuse(nullptr, two), absl::StatusCode::kInvalidArgument), HasSubstr("s/w is whole"));
}

}  // namespace
}  // namespace millrace
