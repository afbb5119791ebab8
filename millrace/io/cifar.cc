#include "millrace/io/cifar.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace millrace {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPlane = kSide * kSide;
constexpr int64_t kColours = 3;
constexpr int64_t kImage = kPlane * kColours;
constexpr int64_t kRecord = 1 + kImage;
constexpr uint8_t kClasses = 10;
// Records per read.
constexpr int64_t kChunk = 256;

constexpr char kFolder[] = "cifar-10-batches-bin";
constexpr char kNames[] = "batches.meta.txt";
constexpr char kReadme[] = "readme.html";
constexpr char kTestBatch[] = "test_batch.bin";
constexpr const char* kTrainBatches[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                         "data_batch_5.bin"};
constexpr const char* kUsualNames[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                       "dog",      "frog",       "horse", "ship", "truck"};

StatusOr<int64_t> RecordsOf(const std::string& path, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(const uint64_t bytes, files->FileSize(path));
  if (bytes == 0 || bytes % kRecord != 0) {
    return DataLoss(path, " is incomplete: ", bytes, " bytes are not a whole number of CIFAR-10's records, which have ",
                    kRecord, " bytes each");
  }
  return static_cast<int64_t>(bytes / kRecord);
}

StatusOr<CifarRecords> MakeImages(int64_t n) {
  CifarRecords made;
  MR_ASSIGN_OR_RETURN(made.images, Tensor::Make(DType::kUInt8, Shape({n, kSide, kSide, kColours})));
  MR_ASSIGN_OR_RETURN(made.labels, Tensor::Make(DType::kInt32, Shape({n})));
  return made;
}

// From planes to pixels.
void Interleave(const uint8_t* planes, uint8_t* pixels) {
  for (int64_t i = 0; i < kPlane; ++i) {
    for (int64_t c = 0; c < kColours; ++c) pixels[i * kColours + c] = planes[c * kPlane + i];
  }
}

// Reads the `n` records of a file into rows `first` and on of `to`.
Status ReadRecords(const std::string& path, FileSystem* files, int64_t n, int64_t first, CifarRecords* to) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, files->OpenSequential(path));
  std::vector<char> buffer(static_cast<size_t>(std::min(n, kChunk) * kRecord));
  for (int64_t done = 0; done < n;) {
    const int64_t count = std::min(n - done, kChunk);
    const auto want = static_cast<size_t>(count * kRecord);
    MR_ASSIGN_OR_RETURN(const size_t got, file->Read(want, buffer.data()));
    if (got != want)
      return DataLoss(path, " is incomplete: it ends in record ", done + static_cast<int64_t>(got) / kRecord);
    for (int64_t i = 0; i < count; ++i, ++done) {
      const auto* record = reinterpret_cast<const uint8_t*>(buffer.data()) + i * kRecord;
      if (record[0] >= kClasses) {
        return InvalidArgument(path, ": record ", done, " has label ", static_cast<int>(record[0]),
                               "; labels are from 0 to ", static_cast<int>(kClasses) - 1);
      }
      to->labels.data<int32_t>()[first + done] = record[0];
      Interleave(record + 1, to->images.data<uint8_t>() + (first + done) * kImage);
    }
  }
  char extra;
  MR_ASSIGN_OR_RETURN(const size_t trailing, file->Read(1, &extra));
  if (trailing != 0) return DataLoss(path, " has more than the ", n, " records that its size says");
  return absl::OkStatus();
}

StatusOr<bool> IsThere(const std::string& path, FileSystem* files) {
  const Status status = files->Exists(path);
  if (status.ok()) return true;
  if (absl::IsNotFound(status)) return false;
  return status;
}

// Those of the needed files that are missing, as an error that names them all.
Status CheckFolder(const std::string& directory, FileSystem* files) {
  std::vector<std::string> missing;
  for (const char* name : kTrainBatches) {
    MR_ASSIGN_OR_RETURN(const bool there, IsThere(JoinPath(directory, name), files));
    if (!there) missing.push_back(name);
  }
  MR_ASSIGN_OR_RETURN(const bool there, IsThere(JoinPath(directory, kTestBatch), files));
  if (!there) missing.push_back(kTestBatch);
  if (missing.empty()) return absl::OkStatus();
  return NotFound(directory, " is not CIFAR-10's binary version (", kFolder, "): it lacks ",
                  absl::StrJoin(missing, ", "));
}

StatusOr<std::vector<std::string>> ReadNames(const std::string& path, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, path));
  std::vector<std::string> names;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view name = absl::StripAsciiWhitespace(line);
    if (!name.empty()) names.emplace_back(name);
  }
  if (names.size() != kClasses)
    return InvalidArgument(path, " has ", names.size(), " names of classes instead of ", static_cast<int>(kClasses));
  return names;
}

}  // namespace

StatusOr<CifarRecords> ReadCifarBatch(const std::string& path, FileSystem* files) {
  MR_ASSIGN_OR_RETURN(const int64_t n, RecordsOf(path, files));
  MR_ASSIGN_OR_RETURN(CifarRecords read, MakeImages(n));
  MR_RETURN_IF_ERROR(ReadRecords(path, files, n, 0, &read));
  return read;
}

StatusOr<CifarFolder> ReadCifarFolder(const std::string& directory, FileSystem* files) {
  const StatusOr<bool> inner = files->IsDirectory(JoinPath(directory, kFolder));
  const std::string folder = inner.ok() && *inner ? JoinPath(directory, kFolder) : directory;
  Status complete = CheckFolder(folder, files);
  if (absl::IsNotFound(files->Exists(folder))) complete = WithPrefix("there is no such directory: ", complete);
  MR_RETURN_IF_ERROR(complete);
  const auto path = [&](const char* name) { return JoinPath(folder, name); };

  CifarFolder cifar;
  MR_ASSIGN_OR_RETURN(const int64_t each, RecordsOf(path(kTrainBatches[0]), files));
  for (const char* name : kTrainBatches) {
    MR_ASSIGN_OR_RETURN(const int64_t n, RecordsOf(path(name), files));
    if (n != each) {
      return DataLoss(path(n < each ? name : kTrainBatches[0]), " is incomplete: it has ", std::min(n, each),
                      " records, and ", n < each ? kTrainBatches[0] : name, " has ", std::max(n, each));
    }
  }
  MR_ASSIGN_OR_RETURN(cifar.train, MakeImages(each * static_cast<int64_t>(std::size(kTrainBatches))));
  int64_t first = 0;
  for (const char* name : kTrainBatches) {
    MR_RETURN_IF_ERROR(ReadRecords(path(name), files, each, first, &cifar.train));
    first += each;
  }
  MR_ASSIGN_OR_RETURN(cifar.test, ReadCifarBatch(path(kTestBatch), files));

  MR_ASSIGN_OR_RETURN(const bool named, IsThere(path(kNames), files));
  if (named) {
    MR_ASSIGN_OR_RETURN(cifar.class_names, ReadNames(path(kNames), files));
  } else {
    cifar.class_names.assign(std::begin(kUsualNames), std::end(kUsualNames));
    cifar.absent.push_back(kNames);
  }
  MR_ASSIGN_OR_RETURN(const bool read_me, IsThere(path(kReadme), files));
  if (!read_me) cifar.absent.push_back(kReadme);
  return cifar;
}

}  // namespace millrace
