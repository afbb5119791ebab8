#include "millrace/io/bundle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "millrace/base/crc32c.h"
#include "millrace/io/faulty_files_testing.h"
#include "millrace/io/memory_files_testing.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

const std::string kGood = absl::StrCat(MILLRACE_TESTDATA, "/checkpoints/");

class BundleTest : public ::testing::Test {
 protected:
  Status Save(const std::string& prefix, const std::vector<std::pair<std::string, Tensor>>& tensors) {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleWriter> writer, BundleWriter::Create(&files_, prefix));
    for (const auto& [name, tensor] : tensors) MR_RETURN_IF_ERROR(writer->Add(name, tensor));
    return writer->Finish();
  }
  static StatusOr<Tensor> Restore(const std::string& prefix, const std::string& name,
                                  FileSystem* files = FileSystem::Posix()) {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(files, prefix));
    return reader->Read(name);
  }
  static StatusOr<Tensor> RestoreSlice(const BundleReader& reader, const std::string& name, const std::string& spec) {
    MR_ASSIGN_OR_RETURN(const ShapeAndSlice part, ShapeAndSlice::Parse(spec));
    MR_ASSIGN_OR_RETURN(const BundleTensor found, reader.FindSlice(name, part));
    MR_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Make(found.dtype, found.shape));
    Tensor* const output = &tensor;
    ThreadPool pool("test", 2);
    MR_RETURN_IF_ERROR(reader.Read({&found, 1}, {&output, 1}, &pool));
    return tensor;
  }
  static std::string Bytes(const std::string& path) { return ReadWholeFile(FileSystem::Posix(), path).value(); }
  // Copies the checkpoint of prefix_ into memory, where a test spoils it.
  void Load() {
    for (const char* suffix : {".index", ".data-00000-of-00001"})
      memory_.files[prefix_ + suffix] = Bytes(prefix_ + suffix);
  }

  FaultyFiles files_;
  MemoryFiles memory_;
  TempDirectory dir_ = TempDirectory::Make("bundle_test").value();
  std::string prefix_ = dir_.File("model");
};

const Tensor kTwoByThree = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});

TEST_F(BundleTest, ReadsEveryTypeThatTensorFlowWrote) {
  const auto reader = BundleReader::Open(FileSystem::Posix(), kGood + "dtypes").value();
  int count = 0;
  ASSERT_TRUE(reader
                  ->ForEach([&](absl::string_view name, const pb::BundleEntryProto& entry) {
                    const auto tensor = reader->Read(name);
                    EXPECT_TRUE(tensor.ok()) << name << tensor.status();
                    EXPECT_EQ(static_cast<int>(tensor->dtype()), static_cast<int>(entry.dtype()));
                    ++count;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_GE(count, 15);
}

TEST_F(BundleTest, WritesTheSameBytesAsTensorFlow) {
  // What the shipped checkpoints hold, written again.
  for (const std::string name : {"dtypes", "tiny-7", "variants"}) {
    const auto reader = BundleReader::Open(FileSystem::Posix(), kGood + name).value();
    const BundleEntries entries = reader->Entries().value();
    // In the order of the data file.
    std::map<int64_t, std::vector<std::string>> by_offset;
    for (const auto& [key, entry] : entries) {
      if (key.front() != '\0' && entry.slices().empty()) by_offset[entry.offset()].push_back(key);
    }
    const auto writer = BundleWriter::Create(&files_, dir_.File(name)).value();
    for (const auto& [offset, keys] : by_offset) {
      // Those without bytes share an offset with the one after them.
      for (const bool empty : {true, false}) {
        for (const std::string& key : keys) {
          if ((entries.at(key).size() == 0) != empty) continue;
          ASSERT_TRUE(writer->Add(key, reader->Read(key).value()).ok());
        }
      }
      if (name == "tiny-7" && offset == 0) {
        for (const char* spec : {"3 2 0,2:0,2", "3 2 2,1:0,2"}) {
          ASSERT_TRUE(
              writer->AddSlice("p/w", ShapeAndSlice::Parse(spec).value(), RestoreSlice(*reader, "p/w", spec).value())
                  .ok());
        }
      }
    }
    ASSERT_TRUE(writer->Finish().ok());
    for (const std::string suffix : {".index", ".data-00000-of-00001"}) {
      EXPECT_EQ(Bytes(dir_.File(name) + suffix), Bytes(kGood + name + suffix)) << name << suffix;
    }
  }
}

TEST_F(BundleTest, AnIndexOfSeveralBlocksHasTensorFlowsBytes) {
  const auto writer = BundleWriter::Create(&files_, prefix_).value();
  for (int i = 0; i < 9000; ++i) {
    ASSERT_TRUE(writer->Add(absl::StrFormat("layer_%05d/some/long/scope/weights", i), Tensor::Scalar<int32_t>(i)).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  const std::string index = Bytes(prefix_ + ".index");
  EXPECT_EQ(index.size(), 391882u);
  EXPECT_EQ(Crc32c(index), 0xb21d4506);
  EXPECT_EQ(Restore(prefix_, "layer_08999/some/long/scope/weights").value().scalar<int32_t>(), 8999);
}

TEST_F(BundleTest, ShardsAndSlicesAreJoined) {
  const auto reader = BundleReader::Open(FileSystem::Posix(), kGood + "sharded").value();
  EXPECT_EQ(reader->num_shards(), 2);
  const Tensor emb = reader->Read("emb").value();
  const auto rows = RestoreSlice(*reader, "emb", absl::StrCat(emb.dim(0), " ", emb.dim(1), " 1,2:-")).value();
  EXPECT_EQ(std::memcmp(rows.raw_data(), emb.Slice(1, 3).raw_data(), rows.TotalBytes()), 0);
}

TEST_F(BundleTest, AnyCutOfAnyCutIsTheSameElements) {
  // A tensor of three dimensions stored in eight blocks, read back in every box.
  const Shape full({4, 3, 5});
  Tensor whole(DType::kInt32, full);
  for (int i = 0; i < 60; ++i) whole.data<int32_t>()[i] = i;
  const auto box = [&](int a, int al, int b, int bl, int c, int cl) {
    Tensor part(DType::kInt32, Shape({al, bl, cl}));
    int32_t* out = part.data<int32_t>();
    for (int i = a; i < a + al; ++i) {
      for (int j = b; j < b + bl; ++j) {
        for (int k = c; k < c + cl; ++k) *out++ = (i * 3 + j) * 5 + k;
      }
    }
    return std::pair(ShapeAndSlice::Parse(absl::StrFormat("4 3 5 %d,%d:%d,%d:%d,%d", a, al, b, bl, c, cl)).value(),
                     part);
  };
  const auto writer = BundleWriter::Create(&files_, prefix_).value();
  for (const auto& [a, al] : {std::pair(0, 3), std::pair(3, 1)}) {
    for (const auto& [b, bl] : {std::pair(0, 1), std::pair(1, 2)}) {
      for (const auto& [c, cl] : {std::pair(0, 2), std::pair(2, 3)}) {
        const auto [part, tensor] = box(a, al, b, bl, c, cl);
        ASSERT_TRUE(writer->AddSlice("w", part, tensor).ok());
      }
    }
  }
  ASSERT_TRUE(writer->Add("whole", whole).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const auto reader = BundleReader::Open(FileSystem::Posix(), prefix_).value();
  for (int a = 0; a < 4; ++a)
    for (int al = 1; a + al <= 4; ++al)
      for (int b = 0; b < 3; ++b)
        for (int bl = 1; b + bl <= 3; ++bl)
          for (int c = 0; c < 5; ++c)
            for (int cl = 1; c + cl <= 5; ++cl) {
              const auto [part, want] = box(a, al, b, bl, c, cl);
              for (const char* name : {"w", "whole"}) {
                const BundleTensor found = reader->FindSlice(name, part).value();
                Tensor got(found.dtype, found.shape);
                Tensor* const output = &got;
                ASSERT_TRUE(reader->Read({&found, 1}, {&output, 1}, nullptr).ok());
                ASSERT_EQ(std::memcmp(got.raw_data(), want.raw_data(), want.TotalBytes()), 0) << part.slice.ToString();
              }
            }
}

TEST_F(BundleTest, StringsInSlicesAreJoined) {
  const auto writer = BundleWriter::Create(&files_, prefix_).value();
  ASSERT_TRUE(writer->AddSlice("s", ShapeAndSlice::Parse("3 0,2").value(), Tensor::Of<std::string>({"a", "bb"})).ok());
  ASSERT_TRUE(writer->AddSlice("s", ShapeAndSlice::Parse("3 2,1").value(), Tensor::Of<std::string>({"ccc"})).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const auto reader = BundleReader::Open(FileSystem::Posix(), prefix_).value();
  EXPECT_EQ(reader->Read("s").value().DebugString(), Tensor::Of<std::string>({"a", "bb", "ccc"}).DebugString());
  EXPECT_EQ(RestoreSlice(*reader, "s", "3 1,2").value().DebugString(),
            Tensor::Of<std::string>({"bb", "ccc"}).DebugString());
}

TEST_F(BundleTest, LargeTensorsAreReadByManyThreads) {
  Tensor large(DType::kInt64, Shape({700001}));
  for (int64_t i = 0; i < large.num_elements(); ++i) large.data<int64_t>()[i] = i * i;
  ASSERT_TRUE(Save(prefix_, {{"a", Tensor::Scalar(1.f)}, {"large", large}, {"z", kTwoByThree}}).ok());
  const auto reader = BundleReader::Open(FileSystem::Posix(), prefix_).value();
  std::vector<BundleTensor> found;
  std::vector<Tensor> tensors;
  for (const char* name : {"a", "large", "z"}) {
    found.push_back(reader->Find(name).value());
    tensors.emplace_back(found.back().dtype, found.back().shape);
  }
  std::vector<Tensor*> outputs = {&tensors[0], &tensors[1], &tensors[2]};
  ThreadPool pool("test", 3);
  ASSERT_TRUE(reader->Read(found, outputs, &pool).ok());
  EXPECT_EQ(std::memcmp(tensors[1].raw_data(), large.raw_data(), large.TotalBytes()), 0);
  EXPECT_EQ(tensors[2].DebugString(), kTwoByThree.DebugString());
  CancellationManager cancelled;
  cancelled.StartCancel();
  EXPECT_EQ(reader->Read(found, outputs, &pool, &cancelled).code(), absl::StatusCode::kCancelled);
}

TEST_F(BundleTest, NamesAreCheckedBeforeAnythingIsWritten) {
  const auto writer = BundleWriter::Create(&files_, prefix_).value();
  ASSERT_TRUE(writer->Add("a", kTwoByThree).ok());
  EXPECT_EQ(writer->Add("a", kTwoByThree).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->Add("", kTwoByThree).code(), absl::StatusCode::kInvalidArgument);
  const ShapeAndSlice part = ShapeAndSlice::Parse("4 3 0,2:-").value();
  EXPECT_EQ(writer->AddSlice("a", part, kTwoByThree).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(writer->AddSlice("b", part, kTwoByThree).ok());
  EXPECT_EQ(writer->AddSlice("b", part, kTwoByThree).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->AddSlice("b", ShapeAndSlice::Parse("5 3 2,2:-").value(), kTwoByThree).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->AddSlice("c", ShapeAndSlice::Parse("4 3 0,1:-").value(), kTwoByThree).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->Add("h", Tensor(DType::kResource, {})).code(), absl::StatusCode::kUnimplemented);
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(writer->Add("late", kTwoByThree).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Restore(prefix_, "a").value().DebugString(), kTwoByThree.DebugString());
  EXPECT_EQ(Restore(prefix_, "b").status().code(), absl::StatusCode::kInvalidArgument) << "half of it is missing";
}

TEST_F(BundleTest, AWriterThatIsNotFinishedLeavesNothing) {
  {
    const auto writer = BundleWriter::Create(&files_, prefix_).value();
    ASSERT_TRUE(writer->Add("a", kTwoByThree).ok());
  }
  EXPECT_TRUE(files_.List(dir_.path()).value().empty());
  EXPECT_EQ(Restore(prefix_, "a").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(BundleTest, OnlyTheLastDirectoryIsMade) {
  EXPECT_TRUE(Save(dir_.File("new/model"), {{"a", kTwoByThree}}).ok());
  const Status status = Save(dir_.File("no/such/model"), {{"a", kTwoByThree}});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

TEST_F(BundleTest, AFullDiskLeavesTheOldCheckpointWhole) {
  ASSERT_TRUE(Save(prefix_, {{"a", kTwoByThree}}).ok());
  for (int64_t room = 0;; room += 10) {
    files_.SetRoom(room);
    const Status status = Save(prefix_, {{"a", Tensor::Scalar(7.f)}, {"b", kTwoByThree}});
    if (status.ok()) break;
    ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(Restore(prefix_, "a").value().DebugString(), kTwoByThree.DebugString());
    EXPECT_EQ(files_.List(dir_.path()).value().size(), 2u) << "temporary files stay";
  }
  EXPECT_EQ(Restore(prefix_, "a").value().scalar<float>(), 7.f);
}

TEST_F(BundleTest, ACrashAtAnyMomentLeavesTheOldTheNewOrNone) {
  const Tensor old_value = Tensor::Scalar(1.f), new_value = Tensor::Scalar(2.f);
  bool none = false;
  int changes = 0;
  for (;; ++changes) {
    files_.CrashAtChange(INT64_MAX);
    ASSERT_TRUE(Save(prefix_, {{"a", old_value}, {"b", old_value}}).ok());
    const std::string other = dir_.File("other");
    ASSERT_TRUE(Save(other, {{"a", old_value}}).ok());
    files_.CrashAtChange(changes);
    const bool done = Save(prefix_, {{"a", new_value}, {"b", new_value}}).ok();
    // Another process looks at what is left.
    EXPECT_EQ(Restore(other, "a").value().scalar<float>(), 1.f);
    const auto a = Restore(prefix_, "a"), b = Restore(prefix_, "b");
    ASSERT_EQ(a.ok(), b.ok()) << a.status() << b.status();
    if (a.ok()) {
      EXPECT_EQ(a->scalar<float>(), b->scalar<float>());
      EXPECT_TRUE(!done || a->scalar<float>() == 2.f);
    } else {
      EXPECT_EQ(a.status().code(), absl::StatusCode::kNotFound) << a.status();
      none = true;
    }
    if (done) break;
  }
  EXPECT_TRUE(none) << "the moment without an index was not met";
  EXPECT_GT(changes, 8);
}

TEST_F(BundleTest, ANewPrefixIsThereWhenItIsWholeAndNotBefore) {
  for (int changes = 0;; ++changes) {
    const std::string prefix = dir_.File(absl::StrCat("new-", changes));
    files_.CrashAtChange(changes);
    const bool done = Save(prefix, {{"a", kTwoByThree}}).ok();
    const auto found = Restore(prefix, "a");
    EXPECT_TRUE(found.ok() || absl::IsNotFound(found.status())) << found.status();
    if (done) {
      EXPECT_TRUE(found.ok());
      break;
    }
  }
}

TEST_F(BundleTest, EveryFlippedBitIsFoundAndNamed) {
  const std::vector<std::string> names = {"a", "e", "s"};
  ASSERT_TRUE(Save(prefix_, {{"a", kTwoByThree},
                             {"e", Tensor(DType::kInt32, {0})},
                             {"s", Tensor::Of<std::string>({"hello", "", "world"})}})
                  .ok());
  Load();
  for (const std::string suffix : {".index", ".data-00000-of-00001"}) {
    const std::string path = prefix_ + suffix, good = memory_.files[path];
    for (size_t i = 0; i < good.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string bad = good;
        bad[i] ^= static_cast<char>(1 << bit);
        memory_.files[path] = bad;
        Status status;
        for (const std::string& name : names) status.Update(Restore(prefix_, name, &memory_).status());
        ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << suffix << " byte " << i << ": " << status;
        EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
        EXPECT_TRUE(suffix == ".index" || absl::StrContains(status.message(), "tensor ")) << status;
      }
    }
    memory_.files[path] = good;
  }
}

TEST_F(BundleTest, VariantsThatAreDamagedOrUnknownAreNamed) {
  const std::string data = ".data-00000-of-00001", from = kGood + "variants";
  for (const std::string& suffix : {std::string(".index"), data})
    memory_.files[prefix_ + suffix] = Bytes(from + suffix);
  const std::string good = memory_.files[prefix_ + data];
  const StatusOr<Tensor> lists = Restore(prefix_, "lists", &memory_);
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_EQ(lists->shape(), Shape({2}));
  EXPECT_EQ(lists->flat<Variant>()[0].value()->TypeName(), "tensorflow::TensorList");
  // The last four bytes are another tensor's.
  for (size_t i = 0; i + 4 < good.size(); ++i) {
    memory_.files[prefix_ + data] = good;
    memory_.files[prefix_ + data][i] ^= 1;
    const Status status = Restore(prefix_, "lists", &memory_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "tensor lists")) << status;
  }
  const auto reader = BundleReader::Open(FileSystem::Posix(), from).value();
  EXPECT_EQ(RestoreSlice(*reader, "lists", "2 0,1").status().code(), absl::StatusCode::kUnimplemented);

  struct Stranger : public VariantValue {
    absl::string_view TypeName() const override { return "test::Stranger"; }
    std::string DebugString() const override { return "a stranger"; }
    Status Encode(std::string*, std::vector<Tensor>*) const override {
      return can_travel ? absl::OkStatus() : Unimplemented("a stranger stays");
    }
    bool can_travel = true;
  };
  const RefPtr<Stranger> stranger = MakeRef<Stranger>();
  Tensor tensor(DType::kVariant, Shape({2}));
  tensor.data<Variant>()[1] = Variant(stranger);
  ASSERT_TRUE(Save(prefix_, {{"s", tensor}}).ok());
  Status status = Restore(prefix_, "s").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(absl::StrContains(status.message(), "test::Stranger")) << status;
  tensor.data<Variant>()[1] = Variant();
  ASSERT_TRUE(Save(prefix_, {{"s", tensor}}).ok());
  EXPECT_TRUE(Restore(prefix_, "s").value().flat<Variant>()[1].empty());
  stranger->can_travel = false;
  tensor.data<Variant>()[1] = Variant(stranger);
  status = Save(prefix_, {{"s", tensor}});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
}

TEST_F(BundleTest, TruncatedAndMissingFilesAreNamed) {
  ASSERT_TRUE(Save(prefix_, {{"a", kTwoByThree}, {"s", Tensor::Of<std::string>({"hello"})}}).ok());
  Load();
  for (const std::string suffix : {".index", ".data-00000-of-00001"}) {
    const std::string path = prefix_ + suffix, good = memory_.files[path];
    for (size_t size = 0; size < good.size(); ++size) {
      memory_.files[path] = good.substr(0, size);
      const Status status = Restore(prefix_, "s", &memory_).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << suffix << " cut to " << size << ": " << status;
      EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
    }
    memory_.files.erase(path);
    const Status status = Restore(prefix_, "a", &memory_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_NE(status.message().find(path), absl::string_view::npos) << status;
    memory_.files[path] = good;
  }
}

// An index whose entry for "a" was changed, with right checksums.
class ForgedIndexTest : public BundleTest {
 protected:
  Status RestoreForged(const std::function<void(pb::BundleEntryProto*)>& change) {
    MR_RETURN_IF_ERROR(Save(prefix_, {{"a", kTwoByThree}, {"s", Tensor::Of<std::string>({"x", "y"})}}));
    MR_ASSIGN_OR_RETURN(const auto reader, BundleReader::Open(&files_, prefix_));
    MR_ASSIGN_OR_RETURN(BundleEntries entries, reader->Entries());
    change(&entries.at("a"));
    MR_RETURN_IF_ERROR(bundle_internal::WriteIndex(&files_, prefix_ + ".index", 1, entries));
    return Restore(prefix_, "a").status();
  }
};

TEST_F(ForgedIndexTest, WhatMakesNoSenseIsAnErrorAndTakesNoMemory) {
  const auto code = [&](const std::function<void(pb::BundleEntryProto*)>& change) {
    return RestoreForged(change).code();
  };
  using absl::StatusCode;
  EXPECT_EQ(code([](auto* e) {}), StatusCode::kOk);
  EXPECT_EQ(code([](auto* e) { e->mutable_shape()->mutable_dim(0)->set_size(int64_t{1} << 40); }),
            StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->mutable_shape()->mutable_dim(0)->set_size(INT64_MAX); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->mutable_shape()->mutable_dim(0)->set_size(-1); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->mutable_shape()->set_unknown_rank(true); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) {
              e->mutable_shape()->mutable_dim(0)->set_size(int64_t{1} << 40);
              e->set_size((int64_t{1} << 40) * 12);
            }),
            StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) {
              e->set_dtype(pb::DT_STRING);
              e->mutable_shape()->mutable_dim(0)->set_size(int64_t{1} << 40);
            }),
            StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->set_dtype(pb::DT_STRING); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->set_dtype(pb::DT_RESOURCE); }), StatusCode::kUnimplemented);
  EXPECT_EQ(code([](auto* e) { e->set_dtype(static_cast<pb::DataType>(77)); }), StatusCode::kUnimplemented);
  EXPECT_EQ(code([](auto* e) { e->set_offset(-8); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->set_offset(INT64_MAX); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->set_offset(4); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->set_shard_id(1); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->set_shard_id(-1); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) { e->add_slices()->add_extent(); }), StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) {
              auto* slice = e->add_slices();
              slice->add_extent()->set_length(INT64_MAX);
              slice->add_extent();
            }),
            StatusCode::kDataLoss);
  EXPECT_EQ(code([](auto* e) {
              auto* slice = e->add_slices();
              slice->add_extent();
              slice->add_extent();
            }),
            StatusCode::kDataLoss)
      << "a slice without an entry of its own";
}

TEST_F(BundleTest, OverlappingSlicesAreAnError) {
  const auto writer = BundleWriter::Create(&files_, prefix_).value();
  for (const char* spec : {"4 0,2", "4 1,2"}) {
    ASSERT_TRUE(writer->AddSlice("a", ShapeAndSlice::Parse(spec).value(), Tensor::Of<float>({1, 2})).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  const auto reader = BundleReader::Open(FileSystem::Posix(), prefix_).value();
  EXPECT_EQ(RestoreSlice(*reader, "a", "4 0,3").status().code(), absl::StatusCode::kInternal);
}

TEST_F(BundleTest, MergingMovesDataAndUnitesSlices) {
  for (int i = 0; i < 2; ++i) {
    const auto writer = BundleWriter::Create(&files_, dir_.File(absl::StrCat("parts/p", i))).value();
    ASSERT_TRUE(writer->Add(absl::StrCat("own", i), Tensor::Scalar<int32_t>(i)).ok());
    ASSERT_TRUE(writer
                    ->AddSlice("w", ShapeAndSlice::Parse(absl::StrCat("4 ", 2 * i, ",2")).value(),
                               Tensor::Of<float>({1.f + i, 2.f + i}))
                    .ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  const std::vector<std::string> parts = {dir_.File("parts/p0"), dir_.File("parts/p1")};
  ASSERT_TRUE(MergeBundles(&files_, parts, prefix_, {}).ok());
  EXPECT_EQ(Restore(prefix_, "w").value().DebugString(), Tensor::Of<float>({1, 2, 2, 3}).DebugString());
  EXPECT_EQ(Restore(prefix_, "own1").value().scalar<int32_t>(), 1);
  EXPECT_EQ(files_.List(dir_.path()).value(),
            (std::vector<std::string>{"model.data-00000-of-00002", "model.data-00001-of-00002", "model.index"}));
}

TEST_F(BundleTest, MergingIntoItselfKeepsIt) {
  ASSERT_TRUE(Save(prefix_, {{"a", kTwoByThree}}).ok());
  for (const std::string& destination : {prefix_, dir_.File("./model")}) {
    ASSERT_TRUE(MergeBundles(&files_, {prefix_}, destination, {}).ok());
    EXPECT_EQ(Restore(prefix_, "a").value().DebugString(), kTwoByThree.DebugString());
  }
}

TEST_F(BundleTest, AMergeThatCannotBeLeavesThePartsAlone) {
  const std::string p0 = dir_.File("p0"), p1 = dir_.File("p1");
  ASSERT_TRUE(Save(p0, {{"a", kTwoByThree}}).ok());
  ASSERT_TRUE(Save(p1, {{"a", kTwoByThree}}).ok());
  EXPECT_EQ(MergeBundles(&files_, {p0, p1}, prefix_, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MergeBundles(&files_, {p0, dir_.File("none")}, prefix_, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MergeBundles(&files_, {}, prefix_, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MergeBundles(&files_, {dir_.File("none")}, prefix_, {.allow_missing = true}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Restore(p0, "a").ok());
  EXPECT_TRUE(Restore(p1, "a").ok());
  EXPECT_TRUE(MergeBundles(&files_, {p0, dir_.File("none")}, prefix_, {.allow_missing = true}).ok());
  EXPECT_TRUE(Restore(prefix_, "a").ok());
}

TEST_F(BundleTest, ACrashDuringAMergeNeverMixesWithTheOldCheckpoint) {
  for (int changes = 0;; ++changes) {
    files_.CrashAtChange(INT64_MAX);
    ASSERT_TRUE(Save(dir_.File("p0"), {{"a", Tensor::Scalar(2.f)}}).ok());
    ASSERT_TRUE(Save(prefix_, {{"a", Tensor::Scalar(1.f)}}).ok());
    files_.CrashAtChange(changes);
    const bool done = MergeBundles(&files_, {dir_.File("p0")}, prefix_, {}).ok();
    const auto found = Restore(prefix_, "a");
    EXPECT_TRUE(found.ok() || absl::IsNotFound(found.status())) << found.status();
    if (done) {
      EXPECT_EQ(found.value().scalar<float>(), 2.f);
      break;
    }
  }
}

}  // namespace
}  // namespace millrace
