#include "millrace/data/cifar_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSize = 3072;

// `n` examples with pixels that differ, and labels 0 to 9 in turn.
CifarImages Examples(int64_t n) {
  CifarImages made{.images = Tensor(DType::kUInt8, Shape({n, 32, 32, 3})), .labels = Tensor(DType::kInt32, Shape({n}))};
  uint32_t state = 1;
  for (uint8_t& pixel : made.images.flat<uint8_t>()) {
    state = state * 1664525 + 1013904223;
    pixel = static_cast<uint8_t>(state >> 24);
  }
  for (int64_t i = 0; i < n; ++i) made.labels.data<int32_t>()[i] = static_cast<int32_t>(i % 10);
  return made;
}

struct Batch {
  std::vector<float> images;
  std::vector<int32_t> labels;
  bool operator==(const Batch&) const = default;
};

std::vector<Batch> Batches(const StatusOr<Dataset>& dataset, int count) {
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  std::vector<Batch> batches;
  const std::unique_ptr<DatasetIterator> it = dataset->MakeIterator().value();
  std::vector<Tensor> element;
  for (int i = 0; i < count; ++i) {
    const StatusOr<bool> more = it->Next(&element);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) break;
    const auto images = element[0].flat<float>();
    const auto labels = element[1].flat<int32_t>();
    batches.push_back({{images.begin(), images.end()}, {labels.begin(), labels.end()}});
  }
  return batches;
}

TEST(CifarTestBatches, EachImageIsStandardisedInItsPlace) {
  CifarImages examples = Examples(5);
  std::fill_n(examples.images.data<uint8_t>() + 4 * kSize, kSize, 200);  // of one colour
  const std::vector<Batch> batches = Batches(CifarTestBatches(examples, 2, 2), 100);
  ASSERT_EQ(batches.size(), 3);
  EXPECT_THAT(batches[1].labels, ElementsAre(2, 3));
  EXPECT_THAT(batches[2].labels, ElementsAre(4));
  for (int i = 0; i < 4; ++i) {
    const float* image = batches[i / 2].images.data() + i % 2 * kSize;
    double sum = 0, squares = 0;
    for (int p = 0; p < kSize; ++p) {
      sum += image[p];
      squares += image[p] * image[p];
    }
    EXPECT_NEAR(sum / kSize, 0, 1e-4);
    EXPECT_NEAR(std::sqrt(squares / kSize), 1, 1e-4);
    // The order of the pixels' values is kept.
    const uint8_t* pixels = examples.images.data<uint8_t>() + i * kSize;
    for (int p = 1; p < kSize; ++p) ASSERT_EQ(image[p] > image[p - 1], pixels[p] > pixels[p - 1]) << i << " " << p;
  }
  EXPECT_EQ(batches[2].images, std::vector<float>(kSize, 0));
}

TEST(CifarTrainingBatches, AnEpochHasEachExampleOnceInAnOrderOfItsOwn) {
  const std::vector<Batch> batches = Batches(CifarTrainingBatches(Examples(10), {.batch_size = 5}), 6);
  ASSERT_EQ(batches.size(), 6);
  std::set<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> labels = batches[2 * epoch].labels;
    labels.insert(labels.end(), batches[2 * epoch + 1].labels.begin(), batches[2 * epoch + 1].labels.end());
    orders.insert(labels);
    std::sort(labels.begin(), labels.end());
    EXPECT_THAT(labels, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
  EXPECT_EQ(orders.size(), 3);
}

TEST(CifarTrainingBatches, WhatDoesNotFillABatchIsLeftOut) {
  const std::vector<Batch> batches = Batches(CifarTrainingBatches(Examples(10), {.batch_size = 4}), 5);
  ASSERT_EQ(batches.size(), 5);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<int32_t> labels(batches[2 * epoch].labels.begin(), batches[2 * epoch].labels.end());
    labels.insert(batches[2 * epoch + 1].labels.begin(), batches[2 * epoch + 1].labels.end());
    EXPECT_EQ(labels.size(), 8);
  }
}

TEST(CifarTrainingBatches, DependOnTheSeedAndNotOnThreads) {
  const CifarImages examples = Examples(40);
  const auto walk = [&](uint64_t seed, int64_t threads) {
    return Batches(CifarTrainingBatches(examples, {.batch_size = 8, .seed = seed, .threads = threads}), 12);
  };
  const std::vector<Batch> one = walk(1, 1);
  EXPECT_EQ(one, walk(1, 4));
  EXPECT_NE(one, walk(2, 1));
  EXPECT_EQ(walk(0, 1), walk(0, 3));
}

TEST(CifarTrainingBatches, AResumedTrainingGetsTheBatchesThatItWouldHaveHad) {
  const CifarImages examples = Examples(22);
  const std::vector<Batch> all = Batches(CifarTrainingBatches(examples, {.batch_size = 5}), 12);
  for (const int first : {1, 3, 4, 9}) {
    const std::vector<Batch> rest = Batches(CifarTrainingBatches(examples, {.batch_size = 5, .first_batch = first}), 3);
    EXPECT_EQ(rest, std::vector<Batch>(all.begin() + first, all.begin() + first + 3)) << first;
  }
}

TEST(CifarTrainingBatches, WorkersShareTheGlobalBatch) {
  const CifarImages examples = Examples(20);
  const std::vector<Batch> whole = Batches(CifarTrainingBatches(examples, {.batch_size = 6}), 7);
  std::vector<std::vector<Batch>> parts;
  for (int64_t w = 0; w < 2; ++w) {
    parts.push_back(Batches(CifarTrainingBatches(examples, {.batch_size = 3, .num_workers = 2, .worker_index = w}), 7));
    ASSERT_EQ(parts.back().size(), 7);
  }
  for (size_t k = 0; k < whole.size(); ++k) {
    for (size_t i = 0; i < 6; ++i) {
      const Batch& part = parts[i % 2][k];
      EXPECT_EQ(part.labels[i / 2], whole[k].labels[i]);
      EXPECT_TRUE(std::equal(part.images.begin() + static_cast<long>(i / 2) * kSize,
                             part.images.begin() + static_cast<long>(i / 2 + 1) * kSize,
                             whole[k].images.begin() + static_cast<long>(i) * kSize));
    }
  }
}

// The image that CifarTestBatches makes of a crop of `pixels` at (top, left), mirrored if `flip`.
std::vector<float> Cropped(const uint8_t* pixels, int top, int left, bool flip) {
  CifarImages one{.images = Tensor(DType::kUInt8, Shape({1, 32, 32, 3})), .labels = Tensor(DType::kInt32, Shape({1}))};
  one.labels.data<int32_t>()[0] = 0;
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      const int from_y = y + top, from_x = (flip ? 31 - x : x) + left;
      const bool inside = from_y >= 0 && from_y < 32 && from_x >= 0 && from_x < 32;
      for (int c = 0; c < 3; ++c)
        one.images.data<uint8_t>()[(y * 32 + x) * 3 + c] = inside ? pixels[(from_y * 32 + from_x) * 3 + c] : 0;
    }
  }
  return Batches(CifarTestBatches(one, 1), 1)[0].images;
}

TEST(CifarTrainingBatches, PartsAreTheBatchesOfSeveralWorkers) {
  const CifarImages examples = Examples(26);
  const CifarTrainingOptions options{.batch_size = 2, .num_workers = 4, .worker_index = 1, .parts = 2};
  for (int64_t part = 0; part < 2; ++part) {
    const std::vector<Batch> own =
        Batches(CifarTrainingBatches(examples, {.batch_size = 2, .num_workers = 4, .worker_index = 1 + part}), 5);
    const std::unique_ptr<DatasetIterator> it = CifarTrainingBatches(examples, options).value().MakeIterator().value();
    std::vector<Tensor> element;
    for (const Batch& batch : own) {
      ASSERT_TRUE(it->Next(&element).value());
      ASSERT_EQ(element.size(), 4u);
      const auto images = element[2 * part].flat<float>();
      const auto labels = element[2 * part + 1].flat<int32_t>();
      EXPECT_EQ(batch, Batch({{images.begin(), images.end()}, {labels.begin(), labels.end()}}));
    }
  }
}

TEST(CifarTrainingBatches, ImagesAreCropsOfThePaddedImageMirroredOrNot) {
  const CifarImages examples = Examples(1);
  std::set<std::vector<float>> possible;
  for (int top = -2; top <= 2; ++top) {
    for (int left = -2; left <= 2; ++left) {
      for (const bool flip : {false, true}) possible.insert(Cropped(examples.images.data<uint8_t>(), top, left, flip));
    }
  }
  ASSERT_EQ(possible.size(), 50);
  std::set<std::vector<float>> seen;
  for (const Batch& batch : Batches(CifarTrainingBatches(examples, {.batch_size = 1, .padding = 2}), 600)) {
    ASSERT_TRUE(possible.contains(batch.images));
    seen.insert(batch.images);
  }
  EXPECT_EQ(seen.size(), 50);
}

TEST(CifarTrainingBatches, CanLeaveImagesAsTheyAre) {
  const CifarImages examples = Examples(1);
  const std::vector<float> plain = Batches(CifarTestBatches(examples, 1), 1)[0].images;
  for (const Batch& batch : Batches(CifarTrainingBatches(examples, {.batch_size = 1, .padding = 0, .flip = false}), 5))
    EXPECT_EQ(batch.images, plain);
}

TEST(CifarTrainingBatches, MistakesAreTold) {
  const auto error = [](const CifarTrainingOptions& options) {
    const Status status = CifarTrainingBatches(Examples(10), options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error({.batch_size = 0}), HasSubstr("batch size is 0"));
  EXPECT_THAT(error({.batch_size = 11}), HasSubstr("larger than the dataset, which has 10"));
  EXPECT_THAT(error({.batch_size = 4, .num_workers = 3}), HasSubstr("3 x 4"));
  EXPECT_THAT(error({.batch_size = 1, .num_workers = 2, .worker_index = 2}), HasSubstr("worker 2 of 2"));
  EXPECT_THAT(error({.batch_size = 1, .num_workers = 2, .worker_index = 1, .parts = 2}), HasSubstr("worker 2 of 2"));
  EXPECT_THAT(error({.batch_size = 1, .parts = 0}), HasSubstr("parts is 0"));
  EXPECT_THAT(error({.batch_size = 1, .padding = 33}), HasSubstr("padding is 33"));
  EXPECT_THAT(error({.batch_size = 1, .first_batch = -1}), HasSubstr("-1"));
  EXPECT_THAT(error({.batch_size = 1, .threads = 0}), HasSubstr("threads is 0"));
  const CifarImages grey{.images = Tensor(DType::kUInt8, Shape({2, 32, 32, 1})),
                         .labels = Tensor(DType::kInt32, Shape({2}))};
  EXPECT_THAT(std::string(CifarTrainingBatches(grey, {.batch_size = 1}).status().message()), HasSubstr("[2,32,32,1]"));
  EXPECT_THAT(std::string(CifarTestBatches(grey, 1).status().message()), HasSubstr("[2,32,32,1]"));
}

}  // namespace
}  // namespace millrace
