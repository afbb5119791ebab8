// CIFAR-10's binary files: records of one label byte and 3,072 bytes of pixels, a plane of 32 rows for each of red,
// green and blue.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct CifarRecords {
  Tensor images;  // uint8 [n,32,32,3], the colours of a pixel side by side
  Tensor labels;  // int32 [n], from 0 to 9
};

// Reads one file of any number of records. Errors name the file and the problem: NOT_FOUND if it is missing, DATA_LOSS
// if it is empty or has no whole number of records, INVALID_ARGUMENT for a label above 9.
StatusOr<CifarRecords> ReadCifarBatch(const std::string& path, FileSystem* files = FileSystem::Posix());

struct CifarFolder {
  CifarRecords train;
  CifarRecords test;
  std::vector<std::string> class_names;  // ten: "airplane", "automobile", ...
  // Files of the distribution that are not there and not needed: batches.meta.txt, readme.html.
  std::vector<std::string> absent;
};

// Reads the directory cifar-10-batches-bin, or the one that it is in. Needed are data_batch_1.bin to data_batch_5.bin,
// with the same number of records each (10,000 in the original), and test_batch.bin. NOT_FOUND names all of them that
// are missing, DATA_LOSS one that is incomplete. INVALID_ARGUMENT if batches.meta.txt is there and has not ten names.
StatusOr<CifarFolder> ReadCifarFolder(const std::string& directory, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
