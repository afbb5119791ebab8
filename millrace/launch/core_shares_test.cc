#include "millrace/launch/core_shares.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CoreClaim Bound(const std::string& host, const std::string& machine, std::vector<int> cores) {
  return {.bound = true, .host = host, .machine = machine, .cores = std::move(cores)};
}

TEST(ShareCores, GivesEqualRunsInOrder) {
  EXPECT_THAT(ShareCores({0, 1, 2, 3}, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(ShareCores({4, 5, 9}, 3), ElementsAre(ElementsAre(4), ElementsAre(5), ElementsAre(9)));
  EXPECT_THAT(ShareCores({7, 8}, 1), ElementsAre(ElementsAre(7, 8)));
}

TEST(ShareCores, GivesWhatIsLeftOverToTheFirst) {
  EXPECT_THAT(ShareCores({0, 1, 2, 3, 4, 5, 6, 7}, 3),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6, 7)));
  EXPECT_THAT(ShareCores({0, 1, 2, 3}, 3), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3)));
}

TEST(ShareOutCores, SharesEachMachineAmongItsOwnWorkersAndLeavesOthersFree) {
  const auto cores = ShareOutCores({{.host = "a", .machine = "A", .cores = {0, 1, 2, 3}},  // a ps
                                    Bound("a", "A", {0, 1, 2, 3}),
                                    Bound("b", "B", {0, 1}),
                                    Bound("a", "A", {0, 1, 2, 3})});
  ASSERT_TRUE(cores.ok()) << cores.status();
  EXPECT_THAT(*cores, ElementsAre(IsEmpty(), ElementsAre(0, 1), ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(ShareOutCores, KnowsAMachineByAllItsNames) {
  const auto cores = ShareOutCores({Bound("localhost", "A", {0, 1}), Bound("127.0.0.1", "A", {0, 1})});
  ASSERT_TRUE(cores.ok()) << cores.status();
  EXPECT_THAT(*cores, ElementsAre(ElementsAre(0), ElementsAre(1)));
  // Two containers of one machine with cores of their own.
  EXPECT_THAT(*ShareOutCores({Bound("c1", "A", {0, 1}), Bound("c2", "A", {2, 3})}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  // Machines that do not tell who they are.
  EXPECT_THAT(*ShareOutCores({Bound("a", "", {0, 1}), Bound("b", "", {0, 1})}),
              ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1)));
}

TEST(ShareOutCores, FewerCoresThanWorkersAreToldWithTheHost) {
  const auto cores = ShareOutCores(
      {Bound("a", "A", {0, 1}), Bound("b", "B", {5, 6}), Bound("b", "B", {5, 6}), Bound("b", "B", {5, 6})});
  ASSERT_EQ(cores.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(cores.status().message()), HasSubstr("b has 2 cores to use, and 3 workers"));
  EXPECT_THAT(std::string(ShareOutCores({Bound("old", "", {})}).status().message()), HasSubstr("old"));
}

TEST(NeighboursTogether, HyperThreadsOfACoreAndCoresOfASocketStandSideBySide) {
  // Two sockets of two cores with two threads each, numbered as many machines do: 0 and 4 are one core.
  const std::filesystem::path system = std::filesystem::path(::testing::TempDir()) / "neighbours_together";
  for (int core = 0; core < 8; ++core) {
    const std::filesystem::path folder = system / ("cpu" + std::to_string(core)) / "topology";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "physical_package_id") << core % 2 << "\n";
    std::ofstream(folder / "thread_siblings_list") << core % 4 << "," << core % 4 + 4 << "\n";
  }
  EXPECT_THAT(NeighboursTogether({0, 1, 2, 3, 4, 5, 6, 7}, system.string()), ElementsAre(0, 4, 2, 6, 1, 5, 3, 7));
  EXPECT_THAT(NeighboursTogether({1, 2, 4, 6}, system.string()), ElementsAre(4, 2, 6, 1));
  std::filesystem::remove_all(system);
  EXPECT_THAT(NeighboursTogether({3, 1, 2}, system.string()), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace millrace::launch
