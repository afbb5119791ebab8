// Feeds arbitrary bytes, in pieces, to the reader of a keeper or launcher.
#include <cstddef>
#include <cstdint>

#include "millrace/launch/keeper_frame.h"
#include "millrace/launch/stream_lines.h"
#include "millrace/launch/training_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::launch;
  if (size < 2) return 0;
  const size_t piece = 1 + data[0];
  KeeperFrameReader reader(/*greeting=*/data[1] % 2 == 1);
  StreamLines lines(/*limit=*/100);
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.Add(bytes.substr(at, piece));
    while (true) {
      auto frame = reader.Next();
      if (!frame.ok()) return 0;
      if (!frame->has_value()) break;
      const std::string& body = (*frame)->body;
      if (auto start = StartFrame::Decode(body);
          start.ok() && StartFrame::Decode(start->Encode()).value().arguments != start->arguments)
        __builtin_trap();
      if (auto hello = HelloFrame::Decode(body);
          hello.ok() && HelloFrame::Decode(hello->Encode()).value().cores != hello->cores)
        __builtin_trap();
      DecodeNumbers(body, 2).IgnoreError();
      lines.Add(body, [](absl::string_view line) { ReadTrainingText(line); });
    }
  }
  lines.Flush([](absl::string_view line) { ReadTrainingText(line); });
  return 0;
}
