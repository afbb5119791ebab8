// Datasets of what files contain: FromTextLines, FromFixedLengthRecords, FromTFRecords and ListFiles.
#include <functional>
#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/base/glob.h"
#include "millrace/data/dataset.h"
#include "millrace/io/buffered_input.h"
#include "millrace/io/record.h"

namespace millrace {
namespace {

// Reads the next record of a file; returns false at the end of the file.
using NextRecord = std::function<StatusOr<bool>(std::string* record)>;
// Opens file `number`, whose name is `path`.
using OpenFile = std::function<StatusOr<NextRecord>(size_t number, const std::string& path)>;

// The records of all files, file by file.
Dataset RecordsOf(std::vector<std::string> paths, OpenFile open) {
  auto all = std::make_shared<const std::vector<std::string>>(std::move(paths));
  return Dataset::FromGenerator([all, open = std::move(open)](uint64_t) -> Generator {
    return [all, open, file = size_t{0}, next = NextRecord()](std::vector<Tensor>* element) mutable -> StatusOr<bool> {
      for (; file < all->size(); ++file, next = nullptr) {
        if (next == nullptr) {
          MR_ASSIGN_OR_RETURN(next, open(file, (*all)[file]));
        }
        std::string record;
        MR_ASSIGN_OR_RETURN(const bool more, next(&record));
        if (more) {
          element->push_back(Tensor::Scalar(std::move(record)));
          return true;
        }
      }
      return false;
    };
  });
}

Status CheckCompression(const FileOptions& options) {
  const std::string& name = options.compression;
  if (name.empty() || name == "GZIP" || name == "ZLIB") return absl::OkStatus();
  return InvalidArgument("compression '", name, "' is not known: '', 'GZIP' and 'ZLIB' are");
}

StatusOr<std::shared_ptr<BufferedInput>> OpenInput(const FileOptions& options, const std::string& path) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<SequentialFile> file, options.files->OpenSequential(path));
  if (!options.compression.empty()) {
    MR_ASSIGN_OR_RETURN(file, Decompressed(std::move(file), path, CompressionOf(options.compression)));
  }
  return std::make_shared<BufferedInput>(std::move(file));
}

// The number of records in a file. INVALID_ARGUMENT if its body is not a multiple of the record size.
StatusOr<uint64_t> CountRecords(const FixedLengthLayout& layout, const FileOptions& options, const std::string& path) {
  uint64_t bytes = 0;
  if (options.compression.empty()) {
    MR_ASSIGN_OR_RETURN(bytes, options.files->FileSize(path));
  } else {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<BufferedInput> input, OpenInput(options, path));
    MR_ASSIGN_OR_RETURN(bytes, input->Skip(~uint64_t{0}));
  }
  const auto header = static_cast<uint64_t>(layout.header_bytes), record = static_cast<uint64_t>(layout.record_bytes),
             footer = static_cast<uint64_t>(layout.footer_bytes);
  if (bytes < header || bytes - header < footer || (bytes - header - footer) % record != 0) {
    return InvalidArgument("Excluding the header (", header, " bytes) and footer (", footer, " bytes), input file \"",
                           path, "\" has a body that is not an exact multiple of the record length (", record,
                           " bytes): it has ", bytes, " bytes");
  }
  return (bytes - header - footer) / record;
}

Status SkipTo(RecordReader& reader, int64_t offset, const std::string& path) {
  std::string skipped;
  while (static_cast<int64_t>(reader.offset()) < offset) {
    MR_ASSIGN_OR_RETURN(const bool more, reader.Read(&skipped));
    if (!more) break;
  }
  if (static_cast<int64_t>(reader.offset()) == offset) return absl::OkStatus();
  return DataLoss("no record of ", path, " begins at byte ", offset);
}

}  // namespace

Dataset Dataset::FromTextLines(std::vector<std::string> paths, FileOptions options) {
  if (Status check = CheckCompression(options); !check.ok()) return Dataset(std::move(check));
  return RecordsOf(std::move(paths), [options](size_t, const std::string& path) -> StatusOr<NextRecord> {
    MR_ASSIGN_OR_RETURN(std::shared_ptr<BufferedInput> input, OpenInput(options, path));
    return NextRecord([input](std::string* line) { return input->ReadLine(line); });
  });
}

Dataset Dataset::FromFixedLengthRecords(std::vector<std::string> paths, FixedLengthLayout layout, FileOptions options) {
  if (Status check = CheckCompression(options); !check.ok()) return Dataset(std::move(check));
  if (layout.header_bytes < 0 || layout.record_bytes < 1 || layout.footer_bytes < 0) {
    return Dataset(InvalidArgument("records of ", layout.record_bytes, " bytes, a header of ", layout.header_bytes,
                                   " and a footer of ", layout.footer_bytes, " make no sense"));
  }
  return RecordsOf(std::move(paths), [layout, options](size_t, const std::string& path) -> StatusOr<NextRecord> {
    MR_ASSIGN_OR_RETURN(const uint64_t records, CountRecords(layout, options, path));
    MR_ASSIGN_OR_RETURN(std::shared_ptr<BufferedInput> input, OpenInput(options, path));
    MR_RETURN_IF_ERROR(input->Skip(static_cast<uint64_t>(layout.header_bytes)).status());
    const auto size = static_cast<uint64_t>(layout.record_bytes);
    return NextRecord([input, left = records, size, path](std::string* out) mutable -> StatusOr<bool> {
      if (left == 0) return false;
      --left;
      MR_ASSIGN_OR_RETURN(const size_t got, input->Read(size, out));
      if (got != size) return DataLoss(path, " ends in the middle of a record");
      return true;
    });
  });
}

Dataset Dataset::FromTFRecords(std::vector<std::string> paths, FileOptions options, std::vector<int64_t> offsets) {
  if (Status check = CheckCompression(options); !check.ok()) return Dataset(std::move(check));
  if (!offsets.empty() && offsets.size() != paths.size()) {
    return Dataset(InvalidArgument("there are ", paths.size(), " files and ", offsets.size(), " offsets"));
  }
  return RecordsOf(std::move(paths),
                   [options, offsets](size_t number, const std::string& path) -> StatusOr<NextRecord> {
                     MR_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> opened,
                                         RecordReader::Open(options.files, path, CompressionOf(options.compression)));
                     const std::shared_ptr<RecordReader> reader = std::move(opened);
                     MR_RETURN_IF_ERROR(SkipTo(*reader, offsets.empty() ? 0 : offsets[number], path));
                     return NextRecord([reader](std::string* record) { return reader->Read(record); });
                   });
}

StatusOr<Dataset> Dataset::ListFiles(const std::vector<std::string>& patterns, ListFilesOptions options) {
  std::vector<std::string> found;
  for (const std::string& pattern : patterns) {
    MR_ASSIGN_OR_RETURN(const std::vector<std::string> matches, Glob(options.files, pattern));
    found.insert(found.end(), matches.begin(), matches.end());
  }
  if (found.empty()) return NotFound("no file matches ", absl::StrJoin(patterns, " or "));
  MR_ASSIGN_OR_RETURN(const Dataset all, FromTensors({Tensor::FromVector(found)}));
  return options.shuffle ? all.Shuffle({.seed = options.seed}) : all;
}

}  // namespace millrace
