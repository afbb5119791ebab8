// Fuzzes the checkpoint reader with arbitrary index entries over arbitrary data. The index gets valid checksums, so
// that the code behind them is reached. The input is a list of length-prefixed strings: keys and values, then the data.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "millrace/io/bundle.h"
#include "millrace/io/memory_files_testing.h"

namespace millrace {
namespace {

class StringFile : public WritableFile {
 public:
  explicit StringFile(std::string* out) : out_(out) {}
  Status Append(absl::string_view data) override {
    out_->append(data.data(), data.size());
    return absl::OkStatus();
  }
  Status Flush() override { return absl::OkStatus(); }
  Status Sync() override { return absl::OkStatus(); }
  Status Close() override { return absl::OkStatus(); }

 private:
  std::string* const out_;
};

std::string Take(absl::string_view* in) {
  if (in->empty()) return "";
  const size_t size = std::min<size_t>(static_cast<uint8_t>(in->front()), in->size() - 1);
  const std::string text(in->substr(1, size));
  in->remove_prefix(1 + size);
  return text;
}

void Run(absl::string_view input) {
  std::map<std::string, std::string> entries;
  pb::BundleHeaderProto header;
  header.set_num_shards(1);
  entries[""] = header.SerializeAsString();
  for (int i = 0; i < 8 && !input.empty(); ++i) {
    const std::string key = Take(&input);
    entries[key] = Take(&input);
  }
  MemoryFiles files;
  StringFile file(&files.files[BundleIndexPath("p")]);
  TableWriter table(&file);
  for (const auto& [key, value] : entries) MR_CHECK(table.Add(key, value).ok());
  MR_CHECK(table.Finish().ok());
  files.files[BundleDataPath("p", 0, 1)] = std::string(input);

  const auto reader = BundleReader::Open(&files, "p");
  if (!reader.ok()) return;
  const ShapeAndSlice part = ShapeAndSlice::Parse("4 2 1,2:-").value();
  for (const auto& [key, value] : entries) {
    (*reader)->Read(key).status().IgnoreError();
    (*reader)->FindSlice(key, part).status().IgnoreError();
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
