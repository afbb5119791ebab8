// RecordInput: batches of records of TFRecord files, in random order, without end.
#include <algorithm>
#include <random>
#include <utility>

#include "millrace/base/glob.h"
#include "millrace/io/gzip.h"
#include "millrace/io/record.h"
#include "millrace/ops/dataset/element_request.h"

namespace millrace {
namespace {

struct RecordFiles {
  FileSystem* files = nullptr;
  std::string pattern;
  Compression compression = Compression::kNone;
  uint64_t seed = 0;
  double shift_ratio = 0;
};

// The files of one epoch: in an order that its number determines, from another beginning in every epoch.
StatusOr<std::vector<std::string>> FilesOfEpoch(const RecordFiles& from, uint64_t epoch) {
  MR_ASSIGN_OR_RETURN(std::vector<std::string> paths, Glob(from.files, from.pattern));
  if (paths.empty()) return NotFound("Found no files at ", from.pattern);
  std::sort(paths.begin(), paths.end());
  std::mt19937_64 random(from.seed + epoch);
  std::shuffle(paths.begin(), paths.end(), random);
  const auto shift = static_cast<size_t>(from.shift_ratio * static_cast<double>(paths.size()));
  std::rotate(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(shift), paths.end());
  return paths;
}

Dataset Records(RecordFiles from) {
  return Dataset::FromGenerator([from = std::move(from)](uint64_t epoch) -> Generator {
    struct State {
      std::vector<std::string> paths = {};
      bool found = false;
      std::shared_ptr<RecordReader> reader = nullptr;
    };
    // Files are looked for when the first record is wanted, on the thread that reads them.
    return [from, epoch, state = State()](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
      if (!std::exchange(state.found, true)) {
        MR_ASSIGN_OR_RETURN(state.paths, FilesOfEpoch(from, epoch));
      }
      for (;;) {
        if (state.reader == nullptr) {
          if (state.paths.empty()) return false;
          MR_ASSIGN_OR_RETURN(state.reader, RecordReader::Open(from.files, state.paths.back(), from.compression));
          state.paths.pop_back();
        }
        std::string record;
        MR_ASSIGN_OR_RETURN(const bool more, state.reader->Read(&record));
        if (more) {
          element->push_back(Tensor::Scalar(std::move(record)));
          return true;
        }
        state.reader = nullptr;
      }
    };
  });
}

class RecordInputKernel : public AsyncKernel {
 public:
  explicit RecordInputKernel(KernelInit& init) {
    std::string compression;
    float shift_ratio = 0;
    init.Attr("file_pattern", &from_.pattern);
    init.Attr("file_random_seed", &seed_);
    init.Attr("file_shuffle_shift_ratio", &shift_ratio);
    init.Attr("file_buffer_size", &buffer_size_);
    init.Attr("file_parallelism", &parallelism_);
    init.Attr("batch_size", &batch_size_);
    init.Attr("compression_type", &compression);
    if (!init.status().ok()) return;
    if (buffer_size_ <= 0) init.Fail(InvalidArgument("file_buffer_size must be positive, not ", buffer_size_));
    if (parallelism_ <= 0) init.Fail(InvalidArgument("file_parallelism must be positive, not ", parallelism_));
    if (!(shift_ratio >= 0 && shift_ratio < 1)) {
      init.Fail(InvalidArgument("file_shuffle_shift_ratio must be at least 0 and below 1, not ", shift_ratio));
    }
    if (!compression.empty() && compression != "GZIP" && compression != "ZLIB") {
      init.Fail(InvalidArgument("Unsupported compression_type '", compression, "': '', 'GZIP' and 'ZLIB' are known"));
    }
    if (!init.status().ok()) return;
    from_.compression = CompressionOf(compression);
    from_.seed = static_cast<uint64_t>(seed_);
    from_.shift_ratio = shift_ratio;
  }
  ~RecordInputKernel() override {
    if (walk_ != nullptr) walk_->Stop();
  }
  bool is_recorded() const override { return true; }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<std::shared_ptr<DatasetWalk>> walk = Walk(ctx);
    if (!walk.ok()) return done(walk.status());
    auto deliver = [&ctx](DatasetWalk::Answer& answer) -> Status {
      if (!answer.ok()) return answer.status();
      if (*answer == nullptr) return absl::OutOfRangeError("the files have no records");
      return SetElementOutputs(ctx, std::move(**answer));
    };
    ElementRequest::Start(ctx, **walk,
                          {.resource = absl::StrCat("records of '", from_.pattern, "'"), .deliver = std::move(deliver)},
                          std::move(done));
  }

 private:
  StatusOr<std::shared_ptr<DatasetWalk>> Walk(KernelContext& ctx) {
    MutexLock lock(&mu_);
    if (walk_ == nullptr) {
      RecordFiles from = from_;
      from.files = ctx.step().files;
      const Dataset batches =
          Records(std::move(from))
              .Shuffle({.buffer_size = buffer_size_, .seed = static_cast<uint64_t>(seed_), .seed2 = 1})
              .Repeat()
              .Batch(batch_size_)
              // Files are read, so it may wait.
              .Map([](std::vector<Tensor>*) { return absl::OkStatus(); }, /*waits=*/true);
      MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> iterator, batches.MakeIterator());
      walk_ = std::make_shared<DatasetWalk>(std::move(iterator), PipelineParts());
    }
    return walk_;
  }

  RecordFiles from_;
  int64_t seed_ = 0;
  int64_t buffer_size_ = 0;
  int64_t parallelism_ = 0;  // one thread reads as fast as a disk
  int64_t batch_size_ = 0;
  Mutex mu_;
  std::shared_ptr<DatasetWalk> walk_ ABSL_GUARDED_BY(mu_);
};

Status RecordInputShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t batch_size, c.Attr<int64_t>("batch_size"));
  if (batch_size <= 0) return InvalidArgument("batch_size must be positive, not ", batch_size);
  c.set_output(0, PartialShape({batch_size}));
  return absl::OkStatus();
}

MILLRACE_OP(RecordInput)
    .Output("records: string")
    .Attr("file_pattern: string")
    .Attr("file_random_seed: int = 301")
    .Attr("file_shuffle_shift_ratio: float = 0")
    .Attr("file_buffer_size: int = 10000")
    .Attr("file_parallelism: int = 16")
    .Attr("batch_size: int = 32")
    .Attr("compression_type: string = ''")
    .Stateful()
    .Shape(RecordInputShape)
    .NotDifferentiable()
    .Trait(OpTrait::kWaits)
    .Summary("Batches of records of files, in random order, each record once in an epoch.");

MILLRACE_KERNEL(RecordInput, kCpu, RecordInputKernel);

}  // namespace
}  // namespace millrace
