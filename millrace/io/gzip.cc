#include "millrace/io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace millrace {
namespace {

constexpr size_t kMagicSize = 2;

// Gives back the bytes that were read to look at, then the rest of the file.
class PlainFile : public SequentialFile {
 public:
  PlainFile(std::unique_ptr<SequentialFile> file, std::string head)
      : file_(std::move(file)), head_(std::move(head)) {}

  StatusOr<size_t> Read(size_t n, char* buffer) override {
    const size_t from_head = std::min(n, head_.size());
    std::memcpy(buffer, head_.data(), from_head);
    head_.erase(0, from_head);
    if (from_head == n) return n;
    MR_ASSIGN_OR_RETURN(const size_t rest, file_->Read(n - from_head, buffer + from_head));
    return from_head + rest;
  }

 private:
  std::unique_ptr<SequentialFile> file_;
  std::string head_;
};

class GzipFile : public SequentialFile {
 public:
  GzipFile(std::unique_ptr<SequentialFile> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)), input_(1 << 16) {}
  ~GzipFile() override { inflateEnd(&stream_); }

  Status Start() {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, kGzipOnly + MAX_WBITS) != Z_OK) {
      return ResourceExhausted("no memory to decompress ", path_);
    }
    return absl::OkStatus();
  }

  StatusOr<size_t> Read(size_t n, char* buffer) override {
    size_t done = 0;
    while (done < n) {
      if (stream_.avail_in == 0) {
        MR_ASSIGN_OR_RETURN(const size_t got, file_->Read(input_.size(), input_.data()));
        if (got == 0) {
          if (in_stream_) return DataLoss(path_, " is truncated: its gzip stream does not end");
          break;
        }
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(got);
      }
      MR_ASSIGN_OR_RETURN(const size_t made, Inflate(n - done, buffer + done));
      done += made;
    }
    return done;
  }

 private:
  StatusOr<size_t> Inflate(size_t n, char* buffer) {
    in_stream_ = true;
    stream_.next_out = reinterpret_cast<Bytef*>(buffer);
    const uInt room = static_cast<uInt>(std::min<size_t>(n, std::numeric_limits<uInt>::max()));
    stream_.avail_out = room;
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      // Another stream may follow, as when compressed files are put one after the other.
      in_stream_ = false;
      inflateReset(&stream_);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return DataLoss(path_, " is damaged: its gzip stream cannot be decompressed",
                      stream_.msg != nullptr ? ": " : "", stream_.msg != nullptr ? stream_.msg : "");
    }
    return room - stream_.avail_out;
  }

  std::unique_ptr<SequentialFile> file_;
  const std::string path_;
  std::vector<char> input_;
  z_stream stream_ = {};
  bool in_stream_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<SequentialFile>> Decompressed(std::unique_ptr<SequentialFile> file,
                                                       const std::string& path) {
  std::string head(kMagicSize, '\0');
  MR_ASSIGN_OR_RETURN(const size_t got, file->Read(kMagicSize, head.data()));
  head.resize(got);
  const bool is_gzip = head == "\x1f\x8b";
  auto plain = std::make_unique<PlainFile>(std::move(file), std::move(head));
  if (!is_gzip) return plain;
  auto gzip = std::make_unique<GzipFile>(std::move(plain), path);
  MR_RETURN_IF_ERROR(gzip->Start());
  return gzip;
}

}  // namespace millrace
