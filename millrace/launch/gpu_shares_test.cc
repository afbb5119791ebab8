#include "millrace/launch/gpu_shares.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::Optional;

const std::optional<std::string> kAsItIs = std::nullopt;

TEST(GpuShares, WhatTheSchedulerGaveToATaskIsKept) {
  EXPECT_THAT(ShareGpus({{"a", "0", true}, {"a", "1", true}, {"b", "0", true}}),
              ElementsAre(kAsItIs, kAsItIs, kAsItIs));
  EXPECT_THAT(ShareGpus({{"a", kAsItIs, true}, {"a", kAsItIs, true}}), ElementsAre(kAsItIs, kAsItIs));
  EXPECT_THAT(ShareGpus({{"a", "", true}, {"a", "", true}}), ElementsAre(kAsItIs, kAsItIs));
}

TEST(GpuShares, AListThatTasksOfAHostSeeIsSharedOutInTheirOrder) {
  EXPECT_THAT(ShareGpus({{"a", "4,5,6", true}, {"b", "4,5,6", true}, {"a", "4,5,6", true}}),
              ElementsAre(Optional(Eq("4,5")), kAsItIs, Optional(Eq("6"))));
  // Names of MIG devices, and fewer of them than tasks.
  EXPECT_THAT(ShareGpus({{"a", "MIG-x,MIG-y", true}, {"a", "MIG-x,MIG-y", true}, {"a", "MIG-x,MIG-y", true}}),
              ElementsAre(Optional(Eq("MIG-x")), Optional(Eq("MIG-y")), Optional(Eq("MIG-x"))));
}

TEST(GpuShares, OnlyTasksThatTrainGetAPart) {
  EXPECT_THAT(ShareGpus({{"a", "0,1", false}, {"a", "0,1", true}, {"a", "0,1", true}}),
              ElementsAre(Optional(Eq("")), Optional(Eq("0")), Optional(Eq("1"))));
  EXPECT_THAT(ShareGpus({{"a", "0,1", false}, {"a", "0,1", false}}), ElementsAre(Optional(Eq("0")), Optional(Eq("1"))));
}

}  // namespace
}  // namespace millrace::launch
