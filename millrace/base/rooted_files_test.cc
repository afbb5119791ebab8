#include "millrace/base/rooted_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "millrace/base/glob.h"

namespace millrace {
namespace {

class RootedFilesTest : public ::testing::Test {
 protected:
  RootedFilesTest() {
    for (const char* name : {"in/sub", "in-not", "out"}) EXPECT_TRUE(posix_->MakeDirectories(dir_.File(name)).ok());
    Write(dir_.File("in/file"));
    Write(dir_.File("out/secret"));
    Write(dir_.File("in-not/secret"));
  }
  void Write(const std::string& path) { ASSERT_TRUE(ReplaceFile(posix_, path, "content").ok()); }
  void Link(const std::string& target, const std::string& name) {
    ASSERT_EQ(symlink(target.c_str(), dir_.File(name).c_str()), 0);
  }
  // Everything that can be done with a path gives this code.
  void ExpectDenied(const std::string& path) {
    for (const Status& status :
         {rooted_.OpenSequential(path).status(), rooted_.OpenRandomAccess(path).status(),
          rooted_.FileSize(path).status(), rooted_.OpenWritable(path, FileSystem::Mode::kTruncate).status(),
          rooted_.Exists(path), rooted_.IsDirectory(path).status(), rooted_.SyncDirectory(path),
          rooted_.List(path).status(), rooted_.MakeDirectories(path)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << path << ": " << status;
      EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), dir_.File("in"))) << status;
    }
  }
  void ExpectCannotMove(const std::string& path) {
    for (const Status& status : {rooted_.Remove(path), rooted_.RemoveTree(path),
                                 rooted_.Rename(path, dir_.File("in/x")), rooted_.Rename(dir_.File("in/file"), path)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << path << ": " << status;
    }
    EXPECT_TRUE(posix_->Exists(dir_.File("in/file")).ok());
  }

  FileSystem* const posix_ = FileSystem::Posix();
  TempDirectory dir_ = TempDirectory::Make("rooted").value();
  RootedFileSystem rooted_{{dir_.File("in")}};
};

TEST_F(RootedFilesTest, WhatIsInsideWorksAsEver) {
  EXPECT_EQ(ReadWholeFile(&rooted_, dir_.File("in/file")).value(), "content");
  EXPECT_EQ(ReadWholeFile(&rooted_, dir_.File("in//./file")).value(), "content");
  ASSERT_TRUE(ReplaceFile(&rooted_, dir_.File("in/sub/new"), "x").ok());
  EXPECT_EQ(rooted_.List(dir_.File("in")).value(), (std::vector<std::string>{"file", "sub"}));
  EXPECT_TRUE(rooted_.MakeDirectories(dir_.File("in/a/b/c")).ok());
  EXPECT_TRUE(rooted_.RemoveTree(dir_.File("in/a")).ok());
  EXPECT_EQ(rooted_.Exists(dir_.File("in/nothing/here")).code(), absl::StatusCode::kNotFound);
}

TEST_F(RootedFilesTest, WhatIsOutsideIsDenied) {
  for (const std::string& path : {dir_.File("out/secret"), dir_.File("out"), dir_.File("out/new"), dir_.path(),
                                  std::string("/"), std::string("/etc/passwd"), dir_.File("in-not/secret")}) {
    ExpectDenied(path);
    ExpectCannotMove(path);
  }
  EXPECT_EQ(rooted_.Remove(dir_.File("in")).code(), absl::StatusCode::kPermissionDenied) << "the root itself stays";
}

TEST_F(RootedFilesTest, DotsAreRefusedWhereverTheyLead) {
  ExpectDenied(dir_.File("in/../out/secret"));
  ExpectDenied(dir_.File("in/sub/../file"));
  ExpectDenied("..");
  ExpectCannotMove(dir_.File("in/sub/../../out/secret"));
}

TEST_F(RootedFilesTest, LinksAreFollowedBeforeTheCheck) {
  Link(dir_.File("out"), "in/escape");
  Link("../out/secret", "in/relative");
  Link("/", "in/all");
  Link(dir_.File("in/escape"), "in/twice");
  Link(dir_.File("in/sub"), "in/inner");
  Link(dir_.File("in/file"), "way-in");
  ExpectDenied(dir_.File("in/escape/secret"));
  ExpectDenied(dir_.File("in/escape"));
  ExpectDenied(dir_.File("in/relative"));
  ExpectDenied(dir_.File("in/all/etc/passwd"));
  ExpectDenied(dir_.File("in/twice/secret"));
  ExpectCannotMove(dir_.File("in/escape/secret"));
  EXPECT_TRUE(ReplaceFile(&rooted_, dir_.File("in/inner/ok"), "x").ok());
  EXPECT_EQ(ReadWholeFile(&rooted_, dir_.File("way-in")).value(), "content") << "what counts is where it leads";
  // A link can be removed; what it leads to stays.
  EXPECT_TRUE(rooted_.Remove(dir_.File("in/relative")).ok());
  EXPECT_TRUE(posix_->Exists(dir_.File("out/secret")).ok());
}

TEST_F(RootedFilesTest, ALinkToNothingOutsideMakesNoFileThere) {
  Link(dir_.File("out/not-yet"), "in/dangling");
  ExpectDenied(dir_.File("in/dangling"));
  ExpectDenied(dir_.File("in/dangling/further"));
  EXPECT_EQ(posix_->Exists(dir_.File("out/not-yet")).code(), absl::StatusCode::kNotFound);
}

TEST_F(RootedFilesTest, LinksInACircleEnd) {
  Link(dir_.File("in/b"), "in/a");
  Link(dir_.File("in/a"), "in/b");
  EXPECT_FALSE(rooted_.Exists(dir_.File("in/a")).ok());
}

TEST_F(RootedFilesTest, RelativePathsStartInTheWorkingDirectory) {
  char before[4096];
  ASSERT_NE(getcwd(before, sizeof(before)), nullptr);
  ASSERT_EQ(chdir(dir_.File("in").c_str()), 0);
  EXPECT_EQ(ReadWholeFile(&rooted_, "file").value(), "content");
  EXPECT_EQ(ReadWholeFile(&rooted_, "./file").value(), "content");
  RootedFileSystem relative({"."});
  ASSERT_EQ(chdir(dir_.path().c_str()), 0);
  EXPECT_EQ(ReadWholeFile(&relative, "in/file").value(), "content") << "a root is resolved when it is given";
  EXPECT_EQ(relative.Exists("out/secret").code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chdir(before), 0);
}

TEST_F(RootedFilesTest, ARootMayBeALinkAndThereMayBeSeveral) {
  Link(dir_.File("in"), "linked");
  RootedFileSystem both({dir_.File("linked"), dir_.File("out")});
  EXPECT_TRUE(both.Exists(dir_.File("in/file")).ok());
  EXPECT_TRUE(both.Exists(dir_.File("linked/file")).ok());
  EXPECT_TRUE(both.Rename(dir_.File("linked/file"), dir_.File("out/file")).ok());
  EXPECT_EQ(both.Exists(dir_.File("in-not/secret")).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RootedFilesTest, WithoutRootsNothingMayBeUsed) {
  RootedFileSystem none({});
  for (const std::string& path : {dir_.File("in/file"), std::string("/"), std::string("x")}) {
    const Status denied = none.OpenWritable(path, FileSystem::Mode::kTruncate).status();
    EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied) << path;
    EXPECT_TRUE(absl::StrContains(denied.message(), "--file_root")) << denied;
  }
}

TEST_F(RootedFilesTest, PatternsSeeOnlyWhatIsInside) {
  Link(dir_.File("out"), "in/escape");
  EXPECT_EQ(Glob(&rooted_, dir_.File("in/*")).value(),
            (std::vector<std::string>{dir_.File("in/escape"), dir_.File("in/file"), dir_.File("in/sub")}));
  EXPECT_TRUE(Glob(&rooted_, dir_.File("in/*/secret")).value().empty());
  EXPECT_EQ(Glob(&rooted_, dir_.File("out/*")).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RootedFilesTest, PatternsMatchAsTensorFlowsDo) {
  const auto glob = [&](const std::string& pattern) {
    std::vector<std::string> names;
    const std::vector<std::string> paths = Glob(posix_, dir_.File(pattern)).value();
    for (const std::string& path : paths) names.push_back(path.substr(dir_.path().size() + 1));
    return names;
  };
  for (const char* name : {"in/a.txt", "in/b.txt", "in/.h.txt", "in/[x].txt", "in/sub/c.txt"}) Write(dir_.File(name));
  using Names = std::vector<std::string>;
  EXPECT_EQ(glob("in/*.txt"), (Names{"in/.h.txt", "in/[x].txt", "in/a.txt", "in/b.txt"}));
  EXPECT_EQ(glob("in/?.txt"), (Names{"in/a.txt", "in/b.txt"}));
  EXPECT_EQ(glob("in/[!a].txt"), (Names{"in/b.txt"}));
  EXPECT_EQ(glob("in/[a-b].txt"), (Names{"in/a.txt", "in/b.txt"}));
  EXPECT_EQ(glob("in/\\[x\\].txt"), (Names{"in/[x].txt"}));
  EXPECT_EQ(glob("in/*/c.txt"), (Names{"in/sub/c.txt"}));
  EXPECT_EQ(glob("in/sub"), (Names{"in/sub"}));
  for (const char* none : {"in/none", "in/none*", "none/*", "in/[", "in//*.txt", "in/*/"})
    EXPECT_EQ(glob(none), Names{}) << none;
}

}  // namespace
}  // namespace millrace
