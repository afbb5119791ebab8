// Datasets of files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "millrace/data/dataset.h"
#include "millrace/io/record.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class FileSourcesTest : public ::testing::Test {
 protected:
  std::string Text(const std::string& name, absl::string_view content) {
    const std::string path = dir_.File(name);
    EXPECT_TRUE(ReplaceFile(FileSystem::Posix(), path, content).ok());
    return path;
  }
  std::string Records(const std::string& name, const std::vector<std::string>& records,
                      Compression compression = Compression::kNone) {
    const std::string path = dir_.File(name);
    std::unique_ptr<RecordWriter> writer = RecordWriter::Create(FileSystem::Posix(), path, compression).value();
    for (const std::string& record : records) EXPECT_TRUE(writer->Write(record).ok());
    EXPECT_TRUE(writer->Close().ok());
    return path;
  }
  static StatusOr<std::vector<std::string>> Strings(const Dataset& dataset, uint64_t epoch = 0) {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<DatasetIterator> it, dataset.MakeIterator(epoch));
    std::vector<std::string> all;
    std::vector<Tensor> element;
    for (;;) {
      MR_ASSIGN_OR_RETURN(const bool more, it->Next(&element));
      if (!more) return all;
      all.push_back(element[0].scalar<std::string>());
    }
  }

  TempDirectory dir_ = TempDirectory::Make("file_sources_test").value();
};

TEST_F(FileSourcesTest, LinesOfAllFilesInOrder) {
  const Dataset lines = Dataset::FromTextLines({Text("a", "one\r\ntwo\n"), Text("empty", ""), Text("b", "three")});
  EXPECT_THAT(Strings(lines).value(), ElementsAre("one", "two", "three"));
  EXPECT_THAT(Strings(lines.Repeat(2)).value(), ElementsAre("one", "two", "three", "one", "two", "three"));
}

TEST_F(FileSourcesTest, RecordsOfOneLengthBetweenHeaderAndFooter) {
  const std::string path = Text("f", "headaabbccfoot");
  const FixedLengthLayout layout{.record_bytes = 2, .header_bytes = 4, .footer_bytes = 4};
  EXPECT_THAT(Strings(Dataset::FromFixedLengthRecords({path}, layout)).value(), ElementsAre("aa", "bb", "cc"));
  const Status odd = Strings(Dataset::FromFixedLengthRecords({path}, {.record_bytes = 4})).status();
  EXPECT_EQ(odd.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(odd.message()), HasSubstr(path));
  EXPECT_EQ(Strings(Dataset::FromFixedLengthRecords({path}, {})).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileSourcesTest, TFRecordsPlainAndCompressed) {
  const std::string plain = Records("p", {"a", "", "c"}), packed = Records("z", {"d"}, Compression::kGzip);
  EXPECT_THAT(Strings(Dataset::FromTFRecords({plain, plain})).value(), ElementsAre("a", "", "c", "a", "", "c"));
  EXPECT_THAT(Strings(Dataset::FromTFRecords({packed}, {.compression = "GZIP"})).value(), ElementsAre("d"));
  EXPECT_EQ(Strings(Dataset::FromTFRecords({packed}, {.compression = "zip"})).status().code(),
            absl::StatusCode::kInvalidArgument);
  // A record of one byte takes 17.
  EXPECT_THAT(Strings(Dataset::FromTFRecords({plain}, {}, {17})).value(), ElementsAre("", "c"));
  EXPECT_EQ(Strings(Dataset::FromTFRecords({plain}, {}, {16})).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Strings(Dataset::FromTFRecords({plain}, {}, {0, 0})).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileSourcesTest, AMissingFileIsNamedWhenThePassGetsToIt) {
  const std::string missing = dir_.File("missing");
  const std::string there = Text("a", "one\n");
  for (const Dataset& dataset :
       {Dataset::FromTextLines({there, missing}),
        Dataset::FromFixedLengthRecords({there, missing}, {.record_bytes = 4}), Dataset::FromTFRecords({missing})}) {
    const Status status = Strings(dataset).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(missing));
  }
  EXPECT_THAT(Strings(Dataset::FromTextLines({there, missing}).Take(1)).value(), ElementsAre("one"));
}

TEST_F(FileSourcesTest, ListFilesMatchesPatternsInOrderOrShuffled) {
  std::vector<std::string> paths;
  for (int i = 0; i < 6; ++i) paths.push_back(Text(absl::StrCat("train-", i), ""));
  const std::string test = Text("test-0", "");
  const StatusOr<Dataset> sorted = Dataset::ListFiles({dir_.File("train-*"), dir_.File("test-?")});
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  std::vector<std::string> all = paths;
  all.push_back(test);
  EXPECT_EQ(Strings(*sorted).value(), all);
  EXPECT_EQ(sorted->Cardinality(), 7);
  const Dataset mixed = Dataset::ListFiles({dir_.File("train-*")}, {.shuffle = true, .seed = 3}).value();
  EXPECT_NE(Strings(mixed).value(), paths);
  EXPECT_EQ(Strings(mixed).value(), Strings(mixed).value());
  EXPECT_NE(Strings(mixed, 0).value(), Strings(mixed, 1).value());
  const Status none = Dataset::ListFiles({dir_.File("nothing-*")}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.message()), HasSubstr("nothing-*"));
}

TEST_F(FileSourcesTest, InterleaveReadsSeveralFilesInTurn) {
  Records("r-0", {"a0", "a1", "a2"});
  Records("r-1", {"b0"});
  Records("r-2", {"c0", "c1"});
  const Dataset files = Dataset::ListFiles({dir_.File("r-*")}).value();
  const Dataset records = files.Interleave(
      [](const std::vector<Tensor>& file) -> StatusOr<Dataset> {
        return Dataset::FromTFRecords({file[0].scalar<std::string>()});
      },
      {.cycle_length = 2});
  EXPECT_THAT(Strings(records).value(), ElementsAre("a0", "b0", "a1", "a2", "c0", "c1"));
  // By file: each worker has files of its own.
  const Dataset shard = files.Shard(2, 1).FlatMap([](const std::vector<Tensor>& file) -> StatusOr<Dataset> {
    return Dataset::FromTFRecords({file[0].scalar<std::string>()});
  });
  EXPECT_THAT(Strings(shard).value(), UnorderedElementsAre("b0"));
}

}  // namespace
}  // namespace millrace
