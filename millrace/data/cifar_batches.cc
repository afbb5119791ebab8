#include "millrace/data/cifar_batches.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/philox.h"

namespace millrace {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kColours = 3;
constexpr int64_t kRow = kSide * kColours;
constexpr int64_t kImage = kSide * kRow;

// Where the crop begins, relative to the image without padding, and whether it is mirrored.
struct Crop {
  int64_t top = 0;
  int64_t left = 0;
  bool flip = false;
};

Crop RandomCrop(const CifarTrainingOptions& options, uint64_t epoch, uint64_t example) {
  Philox random({static_cast<uint32_t>(example), static_cast<uint32_t>(example >> 32), static_cast<uint32_t>(epoch),
                 static_cast<uint32_t>(epoch >> 32)},
                {static_cast<uint32_t>(options.seed), static_cast<uint32_t>(options.seed >> 32)});
  const Philox::Group numbers = random();
  const auto places = static_cast<uint32_t>(2 * options.padding + 1);
  return {.top = static_cast<int64_t>(numbers[0] % places) - options.padding,
          .left = static_cast<int64_t>(numbers[1] % places) - options.padding,
          .flip = options.flip && (numbers[2] & 1) != 0};
}

void CutOut(const uint8_t* image, const Crop& crop, uint8_t* out) {
  const int64_t from = std::max<int64_t>(0, crop.left), to = std::min(kSide, kSide + crop.left);
  std::memset(out, 0, kImage);
  for (int64_t y = 0; y < kSide; ++y) {
    const int64_t source = y + crop.top;
    if (source < 0 || source >= kSide) continue;
    uint8_t* const row = out + y * kRow;
    const uint8_t* const pixels = image + source * kRow;
    if (!crop.flip) {
      std::memcpy(row + (from - crop.left) * kColours, pixels + from * kColours,
                  static_cast<size_t>((to - from) * kColours));
      continue;
    }
    uint8_t* at = row + (kSide - 1 - (from - crop.left)) * kColours;
    for (int64_t x = from; x < to; ++x, at -= kColours) std::memcpy(at, pixels + x * kColours, kColours);
  }
}

// (pixel - mean) / deviation, whose smallest value keeps an image of one colour finite.
void Standardize(const uint8_t* image, float* out) {
  uint32_t sum = 0, squares = 0;  // at most 2^28
  for (int64_t i = 0; i < kImage; ++i) {
    const uint32_t pixel = image[i];
    sum += pixel;
    squares += pixel * pixel;
  }
  const double mean = sum / static_cast<double>(kImage);
  const double variance = std::max(0.0, squares / static_cast<double>(kImage) - mean * mean);
  const double deviation = std::max(std::sqrt(variance), 1 / std::sqrt(static_cast<double>(kImage)));
  const auto m = static_cast<float>(mean), scale = static_cast<float>(1 / deviation);
  for (int64_t i = 0; i < kImage; ++i) out[i] = (static_cast<float>(image[i]) - m) * scale;
}

// Reuses the memory of batches that the consumer has released. Thread-safe.
class FloatBatches {
 public:
  StatusOr<Tensor> Take(int64_t n) {
    MutexLock lock(&mu_);
    for (const Tensor& tensor : tensors_) {
      if (tensor.dim(0) == n && tensor.RefCountIsOne()) return tensor;
    }
    MR_ASSIGN_OR_RETURN(Tensor made, Tensor::Make(DType::kFloat, Shape({n, kSide, kSide, kColours})));
    if (tensors_.size() < kMostBatches) tensors_.push_back(made);
    return made;
  }

 private:
  static constexpr size_t kMostBatches = 64;
  Mutex mu_;
  std::vector<Tensor> tensors_ ABSL_GUARDED_BY(mu_);
};

Status CheckExamples(const CifarImages& examples) {
  const Tensor& images = examples.images;
  if (images.dtype() == DType::kUInt8 && images.rank() == 4 && images.dim(1) == kSide && images.dim(2) == kSide &&
      images.dim(3) == kColours && examples.labels.dtype() == DType::kInt32 && examples.labels.rank() == 1 &&
      examples.labels.dim(0) == images.dim(0)) {
    return absl::OkStatus();
  }
  return InvalidArgument("CIFAR-10 has images of uint8[n,32,32,3] and labels of int32[n], not ", images.dtype(),
                         images.shape().ToString(), " and ", examples.labels.dtype(),
                         examples.labels.shape().ToString());
}

Status CheckOptions(const CifarTrainingOptions& options, int64_t examples) {
  if (options.batch_size < 1) return InvalidArgument("the batch size is ", options.batch_size);
  if (options.threads < 1) return InvalidArgument("the number of threads is ", options.threads);
  if (options.padding < 0 || options.padding > kSide)
    return InvalidArgument("the padding is ", options.padding, ", but must be from 0 to ", kSide);
  if (options.first_batch < 0) return InvalidArgument("the first batch is ", options.first_batch);
  if (options.parts < 1) return InvalidArgument("the number of parts is ", options.parts);
  if (options.num_workers < 1 || options.worker_index < 0 || options.worker_index > options.num_workers - options.parts)
    return InvalidArgument("worker ", options.worker_index + options.parts - 1, " of ", options.num_workers,
                           " does not exist");
  int64_t batch = 0;
  if (__builtin_mul_overflow(options.batch_size, options.num_workers, &batch) || batch > examples) {
    return InvalidArgument("a global batch of ", options.num_workers, " x ", options.batch_size,
                           " examples is larger than the dataset, which has ", examples);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Dataset> CifarTrainingBatches(const CifarImages& examples, const CifarTrainingOptions& options) {
  MR_RETURN_IF_ERROR(CheckExamples(examples));
  const int64_t count = examples.images.dim(0);
  MR_RETURN_IF_ERROR(CheckOptions(options, count));
  Tensor numbers(DType::kInt64, Shape({count}));
  for (int64_t i = 0; i < count; ++i) numbers.data<int64_t>()[i] = i;
  MR_ASSIGN_OR_RETURN(const Dataset rows, Dataset::FromTensors({examples.images, examples.labels, numbers}));

  const int64_t global_batch = options.batch_size * options.num_workers;
  const int64_t batches = count / global_batch;
  const int64_t first_epoch = options.first_batch / batches;
  const auto memory = std::make_shared<FloatBatches>();
  const auto of_epoch = [=](const std::vector<Tensor>& element) -> StatusOr<Dataset> {
    const int64_t epoch = element[0].scalar<int64_t>();
    const int64_t skipped = epoch == first_epoch ? options.first_batch % batches : 0;
    const auto augment = [=](std::vector<Tensor>* batch) -> Status {
      // A global batch has the examples of all workers in turn.
      std::vector<Tensor> own;
      for (int64_t part = 0; part < options.parts; ++part) {
        MR_ASSIGN_OR_RETURN(Tensor images, memory->Take(options.batch_size));
        MR_ASSIGN_OR_RETURN(Tensor labels, Tensor::Make(DType::kInt32, Shape({options.batch_size})));
        for (int64_t i = 0; i < options.batch_size; ++i) {
          const int64_t row = i * options.num_workers + options.worker_index + part;
          const auto example = static_cast<uint64_t>((*batch)[2].data<int64_t>()[row]);
          uint8_t image[kImage];
          CutOut((*batch)[0].data<uint8_t>() + row * kImage, RandomCrop(options, static_cast<uint64_t>(epoch), example),
                 image);
          Standardize(image, images.raw<float>() + i * kImage);
          labels.data<int32_t>()[i] = (*batch)[1].data<int32_t>()[row];
        }
        own.push_back(std::move(images));
        own.push_back(std::move(labels));
      }
      *batch = std::move(own);
      return absl::OkStatus();
    };
    // seed2 is never 0: with two zeros the order would differ from run to run.
    return rows.Shuffle({.seed = options.seed, .seed2 = static_cast<uint64_t>(epoch) + 1})
        .Take(batches * global_batch)
        .Skip(skipped * global_batch)
        .Batch(global_batch)
        .ParallelMap(augment, options.threads);
  };
  return Dataset::Range(first_epoch, std::numeric_limits<int64_t>::max()).FlatMap(of_epoch);
}

StatusOr<Dataset> CifarTestBatches(const CifarImages& examples, int64_t batch_size, int64_t threads) {
  MR_RETURN_IF_ERROR(CheckExamples(examples));
  MR_ASSIGN_OR_RETURN(const Dataset rows, Dataset::FromTensors({examples.images, examples.labels}));
  const auto memory = std::make_shared<FloatBatches>();
  const auto standardize = [memory](std::vector<Tensor>* batch) -> Status {
    const int64_t n = (*batch)[0].dim(0);
    MR_ASSIGN_OR_RETURN(Tensor out, memory->Take(n));
    for (int64_t i = 0; i < n; ++i)
      Standardize((*batch)[0].raw<const uint8_t>() + i * kImage, out.raw<float>() + i * kImage);
    (*batch)[0] = std::move(out);
    return absl::OkStatus();
  };
  return rows.Batch(batch_size).ParallelMap(standardize, threads);
}

}  // namespace millrace
