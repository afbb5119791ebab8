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

// zlib selects the format by the window size.
int WindowBits(Compression compression) { return compression == Compression::kGzip ? 16 + MAX_WBITS : MAX_WBITS; }
const char* Name(Compression compression) { return compression == Compression::kGzip ? "gzip" : "zlib"; }

// Returns the bytes that were read to detect the format, then the rest of the file.
class PlainFile : public SequentialFile {
 public:
  PlainFile(std::unique_ptr<SequentialFile> file, std::string head) : file_(std::move(file)), head_(std::move(head)) {}

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
  GzipFile(std::unique_ptr<SequentialFile> file, std::string path, Compression compression)
      : file_(std::move(file)), path_(std::move(path)), compression_(compression), input_(1 << 16) {}
  ~GzipFile() override { inflateEnd(&stream_); }

  Status Start() {
    if (inflateInit2(&stream_, WindowBits(compression_)) != Z_OK) {
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
          if (in_stream_) return DataLoss(path_, " is truncated: its ", Name(compression_), " stream does not end");
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
      // Another stream may follow: compressed files may be concatenated.
      in_stream_ = false;
      inflateReset(&stream_);
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      return DataLoss(path_, " is damaged: its ", Name(compression_), " stream cannot be decompressed",
                      stream_.msg != nullptr ? ": " : "", stream_.msg != nullptr ? stream_.msg : "");
    }
    return room - stream_.avail_out;
  }

  std::unique_ptr<SequentialFile> file_;
  const std::string path_;
  const Compression compression_;
  std::vector<char> input_;
  z_stream stream_ = {};
  bool in_stream_ = false;
};

class DeflatingFile : public WritableFile {
 public:
  DeflatingFile(std::unique_ptr<WritableFile> file, std::string path)
      : file_(std::move(file)), path_(std::move(path)), output_(1 << 16) {}
  ~DeflatingFile() override {
    if (!closed_) Close().IgnoreError();
    deflateEnd(&stream_);
  }

  Status Start(Compression compression) {
    constexpr int kMemoryLevel = 8;
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, WindowBits(compression), kMemoryLevel,
                     Z_DEFAULT_STRATEGY) == Z_OK) {
      return absl::OkStatus();
    }
    closed_ = true;
    return ResourceExhausted("no memory to compress ", path_);
  }

  Status Append(absl::string_view data) override {
    while (!data.empty()) {
      const absl::string_view piece = data.substr(0, size_t{1} << 30);  // zlib takes 32-bit sizes
      MR_RETURN_IF_ERROR(Deflate(piece, Z_NO_FLUSH));
      data.remove_prefix(piece.size());
    }
    return absl::OkStatus();
  }
  Status Flush() override {
    MR_RETURN_IF_ERROR(Deflate("", Z_SYNC_FLUSH));
    return file_->Flush();
  }
  Status Sync() override {
    MR_RETURN_IF_ERROR(Deflate("", Z_SYNC_FLUSH));
    return file_->Sync();
  }
  Status Close() override {
    if (closed_) return FailedPrecondition(path_, " is closed already");
    const Status status = Deflate("", Z_FINISH);
    closed_ = true;
    const Status closed = file_->Close();
    return status.ok() ? closed : status;
  }

 private:
  Status Deflate(absl::string_view data, int flush) {
    if (closed_) return FailedPrecondition(path_, " is closed");
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
    stream_.avail_in = static_cast<uInt>(data.size());
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(output_.data());
      stream_.avail_out = static_cast<uInt>(output_.size());
      deflate(&stream_, flush);
      MR_RETURN_IF_ERROR(file_->Append({output_.data(), output_.size() - stream_.avail_out}));
    } while (stream_.avail_out == 0);
    return absl::OkStatus();
  }

  std::unique_ptr<WritableFile> file_;
  const std::string path_;
  std::vector<char> output_;
  z_stream stream_ = {};
  bool closed_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<SequentialFile>> Decompressed(std::unique_ptr<SequentialFile> file, const std::string& path) {
  std::string head(kMagicSize, '\0');
  MR_ASSIGN_OR_RETURN(const size_t got, file->Read(kMagicSize, head.data()));
  head.resize(got);
  const bool is_gzip = head == "\x1f\x8b";
  auto plain = std::make_unique<PlainFile>(std::move(file), std::move(head));
  if (!is_gzip) return plain;
  return Decompressed(std::move(plain), path, Compression::kGzip);
}

StatusOr<std::unique_ptr<SequentialFile>> Decompressed(std::unique_ptr<SequentialFile> file, const std::string& path,
                                                       Compression compression) {
  if (compression == Compression::kNone) return file;
  auto stream = std::make_unique<GzipFile>(std::move(file), path, compression);
  MR_RETURN_IF_ERROR(stream->Start());
  return stream;
}

StatusOr<std::unique_ptr<WritableFile>> Compressed(std::unique_ptr<WritableFile> file, const std::string& path,
                                                   Compression compression) {
  if (compression == Compression::kNone) return file;
  auto stream = std::make_unique<DeflatingFile>(std::move(file), path);
  MR_RETURN_IF_ERROR(stream->Start(compression));
  return stream;
}

Compression CompressionOf(absl::string_view name) {
  return name == "GZIP" ? Compression::kGzip : name == "ZLIB" ? Compression::kZlib : Compression::kNone;
}

}  // namespace millrace
