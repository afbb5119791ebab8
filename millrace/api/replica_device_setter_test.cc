#include "millrace/api/replica_device_setter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "millrace/millrace.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

Operation Handle(const Scope& scope, const PartialShape& shape = {}) {
  return AddOp(scope, "VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", shape}});
}
std::string DeviceOf(const Operation& op) { return op.node() == nullptr ? "none" : op.node()->requested_device(); }

Scope Replica(ReplicaDeviceSetterOptions options) {
  return Scope::NewRoot().WithDeviceFunction(ReplicaDeviceSetter(std::move(options)));
}

TEST(ReplicaDeviceSetter, VariablesGoRoundTheServersAndTheRestToTheWorker) {
  const Scope root = Replica({.ps_tasks = 2, .worker_device = "/job:worker/task:3"});
  EXPECT_EQ(DeviceOf(Handle(root)), "/job:ps/task:0");
  EXPECT_EQ(DeviceOf(ops::NoOp(root)), "/job:worker/task:3");
  EXPECT_EQ(DeviceOf(Handle(root)), "/job:ps/task:1");
  EXPECT_EQ(DeviceOf(Handle(root.SubScope("layer"))), "/job:ps/task:0");
  EXPECT_TRUE(root.ok()) << root.status();
}

TEST(ReplicaDeviceSetter, WhatAScopeWithinSaysIsKept) {
  const Scope root = Replica({.ps_tasks = 2});
  EXPECT_EQ(DeviceOf(Handle(root.WithDevice("/device:GPU:1"))), "/job:ps/task:0/device:GPU:1");
  EXPECT_EQ(DeviceOf(ops::NoOp(root.WithDevice("/device:GPU:1"))), "/job:worker/device:GPU:1");
  EXPECT_EQ(DeviceOf(Handle(root.WithDevice("/job:ps/task:7"))), "/job:ps/task:7");
  // Of another job, it is no server's.
  EXPECT_EQ(DeviceOf(Handle(root.WithDevice("/job:evaluator"))), "/job:evaluator");
}

TEST(ReplicaDeviceSetter, TheScopeAroundFillsInWhatIsOpen) {
  const Scope root =
      Scope::NewRoot().WithDevice("/replica:4/device:CPU:1").WithDeviceFunction(ReplicaDeviceSetter({.ps_tasks = 1}));
  EXPECT_EQ(DeviceOf(Handle(root)), "/job:ps/replica:4/task:0/device:CPU:1");
}

TEST(ReplicaDeviceSetter, WithoutMergingAnAskingNodeIsLeftAlone) {
  const Scope root = Replica({.ps_tasks = 2, .merge_devices = false});
  EXPECT_EQ(DeviceOf(ops::NoOp(root.WithDevice("/device:CPU:1"))), "/device:CPU:1");
  EXPECT_EQ(DeviceOf(ops::NoOp(root)), "/job:worker");
}

TEST(ReplicaDeviceSetter, WithoutServersNothingChanges) { EXPECT_EQ(DeviceOf(Handle(Replica({}))), ""); }

TEST(ReplicaDeviceSetter, GreedyTakesTheServerWithTheFewestBytes) {
  const Scope root = Replica({.ps_tasks = 2, .ps_strategy = GreedyStrategy(2)});
  EXPECT_EQ(DeviceOf(Handle(root, {100, 10})), "/job:ps/task:0");
  EXPECT_EQ(DeviceOf(Handle(root, {10})), "/job:ps/task:1");
  EXPECT_EQ(DeviceOf(Handle(root, {10})), "/job:ps/task:1");
  EXPECT_EQ(DeviceOf(Handle(root, {1000})), "/job:ps/task:1");
  EXPECT_EQ(DeviceOf(Handle(root, {1})), "/job:ps/task:0");
}

TEST(ReplicaDeviceSetter, WhatIsColocatedFollowsItsVariable) {
  const Scope root = Replica({.ps_tasks = 2});
  const Operation a = Handle(root), b = Handle(root);
  EXPECT_EQ(DeviceOf(ops::NoOp(root.ColocateWith(b))), "/job:ps/task:1");
}

TEST(ReplicaDeviceSetter, AVariableAndItsUpdatesStandOnOneServer) {
  const Scope root = Replica({.ps_tasks = 2, .worker_device = "/job:worker/task:0"});
  const Var a(root, "a", Shape{2}, init::Zeros()), b(root, "b", Shape{2}, init::Zeros());
  const Output loss = ops::Sum(root, ops::Mul(root, a, b), 0);
  optimizers::Adam({}).Minimize(root, loss);
  ASSERT_TRUE(root.ok()) << root.status();
  for (const Node* node : root.graph()->nodes()) {
    if (!node->is_type("ResourceApplyAdam")) continue;
    EXPECT_EQ(node->requested_device(), node->input(0).node->requested_device());
    EXPECT_THAT(node->requested_device(), HasSubstr("/job:ps/task:"));
  }
  EXPECT_EQ(DeviceOf(loss), "/job:worker/task:0");
}

TEST(ReplicaDeviceSetter, SettingsOfAnOptimizerAreWhereTheyAreUsed) {
  const Scope root = Replica({.ps_tasks = 2, .worker_device = "/job:worker/task:0"});
  const Var a(root, "a", Shape{2}, init::Zeros()), b(root, "b", Shape{2}, init::Zeros());
  optimizers::GradientDescent({.learning_rate = 0.1}).Minimize(root, ops::Sum(root, ops::Mul(root, a, b), 0));
  ASSERT_TRUE(root.ok()) << root.status();
  int updates = 0;
  for (const Node* node : root.graph()->nodes()) {
    if (!node->is_type("ResourceApplyGradientDescent")) continue;
    ++updates;
    EXPECT_EQ(node->input(1).node->requested_device(), node->requested_device());
  }
  EXPECT_EQ(updates, 2);
}

TEST(Scope, AMalformedDeviceOfADeviceFunctionNamesTheNode) {
  const Scope root = Scope::NewRoot().WithDeviceFunction([](const Node&) { return std::string("/job:"); });
  ops::NoOp(root.WithOpName("lost"));
  EXPECT_EQ(root.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(root.status().message()), HasSubstr("{{node lost}}"));
}

}  // namespace
}  // namespace millrace
