#include "millrace/device/gpu_layout.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kGigabyte = int64_t{1} << 30;

// Two cards of 8 and 4 GB.
std::vector<GpuCard> TwoCards() {
  return {{.model = "Large", .memory = 8 * kGigabyte, .least_priority = 0, .greatest_priority = -5},
          {.model = "Small", .memory = 4 * kGigabyte, .least_priority = 0, .greatest_priority = -5}};
}

std::string ErrorOf(const GpuOptions& options) {
  const auto places = LayOutGpus(options, TwoCards());
  EXPECT_TRUE(absl::IsInvalidArgument(places.status())) << places.status();
  return std::string(places.status().message());
}

TEST(GpuLayoutTest, EveryCardIsADeviceByDefault) {
  EXPECT_THAT(LayOutGpus({}, TwoCards()).value(), ElementsAre(GpuPlace{.card = 0}, GpuPlace{.card = 1}));
  EXPECT_TRUE(LayOutGpus({}, {}).value().empty());
}

TEST(GpuLayoutTest, CardsAreTakenInTheOrderGiven) {
  EXPECT_THAT(LayOutGpus({.cards = {1, 0}}, TwoCards()).value(), ElementsAre(GpuPlace{.card = 1}, GpuPlace{.card = 0}));
  EXPECT_THAT(LayOutGpus({.cards = {1}}, TwoCards()).value(), ElementsAre(GpuPlace{.card = 1}));
}

TEST(GpuLayoutTest, AFractionIsOfEachCardsOwnMemory) {
  EXPECT_THAT(LayOutGpus({.memory_fraction = 0.5}, TwoCards()).value(),
              ElementsAre(GpuPlace{.card = 0, .memory_limit = 4 * kGigabyte},
                          GpuPlace{.card = 1, .memory_limit = 2 * kGigabyte}));
}

TEST(GpuLayoutTest, DevicesOfOneCardShareItsMemory) {
  EXPECT_THAT(LayOutGpus({.cards = {1}, .devices_per_card = 2}, TwoCards()).value(),
              ElementsAre(GpuPlace{.card = 1, .part = 0, .memory_limit = 2 * kGigabyte},
                          GpuPlace{.card = 1, .part = 1, .memory_limit = 2 * kGigabyte}));
  EXPECT_THAT(LayOutGpus({.cards = {1}, .memory_fraction = 0.5, .devices_per_card = 2}, TwoCards()).value(),
              ElementsAre(GpuPlace{.card = 1, .part = 0, .memory_limit = kGigabyte},
                          GpuPlace{.card = 1, .part = 1, .memory_limit = kGigabyte}));
  EXPECT_THAT(LayOutGpus({.cards = {1}, .memory_limit = kGigabyte, .devices_per_card = 2}, TwoCards()).value(),
              ElementsAre(GpuPlace{.card = 1, .part = 0, .memory_limit = kGigabyte},
                          GpuPlace{.card = 1, .part = 1, .memory_limit = kGigabyte}));
}

TEST(GpuLayoutTest, VirtualDevicesAreNumberedByTheirOrdinals) {
  const GpuOptions options = {
      .virtual_gpus = {{{.memory_limit = kGigabyte, .ordinal = 20}, {.memory_limit = 2 * kGigabyte, .ordinal = 5}},
                       {{.memory_limit = kGigabyte, .priority = -1, .ordinal = 10}}}};
  EXPECT_THAT(LayOutGpus(options, TwoCards()).value(),
              ElementsAre(GpuPlace{.card = 0, .part = 1, .memory_limit = 2 * kGigabyte},
                          GpuPlace{.card = 1, .part = 0, .memory_limit = kGigabyte, .priority = -1},
                          GpuPlace{.card = 0, .part = 0, .memory_limit = kGigabyte}));
}

TEST(GpuLayoutTest, ACardWithoutVirtualDevicesIsOneDevice) {
  EXPECT_THAT(LayOutGpus({.virtual_gpus = {{}, {{.memory_limit = kGigabyte}}}}, TwoCards()).value(),
              ElementsAre(GpuPlace{.card = 0}, GpuPlace{.card = 1, .memory_limit = kGigabyte}));
}

TEST(GpuLayoutTest, WhatTheCardsDoNotHaveIsNamed) {
  EXPECT_THAT(ErrorOf({.cards = {0, 2}}), HasSubstr("the list of GPUs names 2, and there are only 2"));
  EXPECT_THAT(ErrorOf({.memory_limit = 5 * kGigabyte}),
              HasSubstr("5368709120 bytes is above the 4294967296 bytes of card 1 (Small)"));
  EXPECT_THAT(ErrorOf({.memory_limit = 3 * kGigabyte, .devices_per_card = 2}),
              HasSubstr("for each of 2 devices is above the 4294967296 bytes of card 1"));
  EXPECT_THAT(ErrorOf({.virtual_gpus = {{}, {}, {{.memory_limit = kGigabyte}}}}),
              HasSubstr("virtual devices are given for 3 GPUs, and 2 are used"));
  EXPECT_THAT(ErrorOf({.virtual_gpus = {{{.memory_limit = 5 * kGigabyte}, {.memory_limit = 4 * kGigabyte}}}}),
              HasSubstr("the virtual devices of card 0 (Large) have more memory than its 8589934592 bytes"));
  EXPECT_THAT(ErrorOf({.virtual_gpus = {{{.memory_limit = std::numeric_limits<int64_t>::max()},
                                         {.memory_limit = std::numeric_limits<int64_t>::max()}}}}),
              HasSubstr("have more memory"));
  EXPECT_THAT(ErrorOf({.virtual_gpus = {{{.memory_limit = kGigabyte, .priority = 1}}}}),
              HasSubstr("has priority 1; streams there have -5 (first) to 0"));
}

TEST(GpuLayoutTest, OptionsThatMakeNoSenseAreNamed) {
  EXPECT_THAT(ErrorOf({.memory_fraction = 1.5}), HasSubstr("the fraction of a GPU's memory is 1.5"));
  EXPECT_THAT(ErrorOf({.memory_fraction = -0.1}), HasSubstr("is -0.1"));
  EXPECT_THAT(ErrorOf({.memory_fraction = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("is nan"));
  EXPECT_THAT(ErrorOf({.memory_limit = -1}), HasSubstr("is -1 bytes"));
  EXPECT_THAT(ErrorOf({.devices_per_card = 0}), HasSubstr("on each card is 0"));
  EXPECT_THAT(ErrorOf({.memory_fraction = 0.5, .memory_limit = 1}), HasSubstr("not both"));
  EXPECT_THAT(ErrorOf({.cards = {-1}}), HasSubstr("has the number -1"));
  EXPECT_THAT(ErrorOf({.cards = {1, 0, 1}}), HasSubstr("names 1 twice"));
  EXPECT_THAT(ErrorOf({.memory_fraction = 0.5, .virtual_gpus = {{{.memory_limit = 1}}}}),
              HasSubstr("virtual devices have memory limits of their own"));
  EXPECT_THAT(ErrorOf({.virtual_gpus = {{{.memory_limit = 0}}}}), HasSubstr("has the memory limit 0"));
}

TEST(GpuLayoutTest, TheFirstTaskOfAProcessDecides) {
  GpuLayout layout;
  const GpuOptions half = {.memory_fraction = 0.5};
  const std::vector<GpuPlace> places = layout.Agree(half, TwoCards()).value();
  EXPECT_EQ(layout.Agree({}, TwoCards()).value(), places) << "who has no wishes takes what there is";
  EXPECT_EQ(layout.Agree(half, TwoCards()).value(), places);
  const auto other = layout.Agree({.cards = {1}}, TwoCards());
  EXPECT_TRUE(absl::IsInvalidArgument(other.status()));
  EXPECT_THAT(
      other.status().message(),
      HasSubstr("the GPUs of this process are GPU:0 on card 0 (limit 4294967296 bytes), GPU:1 on card 1 (limit "
                "2147483648 bytes), as its first session or server had them, and cannot become GPU:0 on card 1"));
}

TEST(GpuLayoutTest, AnErrorDecidesNothing) {
  GpuLayout layout;
  EXPECT_FALSE(layout.Agree({.memory_fraction = 2}, TwoCards()).ok());
  EXPECT_TRUE(layout.Agree({.memory_fraction = 0.5}, TwoCards()).ok());
}

}  // namespace
}  // namespace millrace
