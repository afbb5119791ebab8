#include "millrace/cluster/step/rendezvous_key.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace millrace {
namespace {

absl::string_view TaskOfDevice(absl::string_view device) {
  const size_t at = device.find("/device:");
  return at == absl::string_view::npos ? absl::string_view() : device.substr(0, at);
}

}  // namespace

absl::string_view SentTensorName(absl::string_view tensor) {
  if (!absl::ConsumePrefix(&tensor, "edge_")) return tensor;
  const size_t at = tensor.find('_');
  return at == absl::string_view::npos ? tensor : tensor.substr(at + 1);
}

StatusOr<ParsedKey> ParsedKey::Parse(absl::string_view key) {
  const std::vector<absl::string_view> parts = absl::StrSplit(key, ';');
  ParsedKey parsed;
  const auto bad = [&] { return InvalidArgument("'", key, "' is not a rendezvous key"); };
  if (parts.size() != 5) return bad();
  parsed.send_device = parts[0];
  parsed.recv_device = parts[2];
  parsed.tensor = parts[3];
  parsed.send_task = TaskOfDevice(parsed.send_device);
  parsed.recv_task = TaskOfDevice(parsed.recv_device);
  if (parts[1].size() != 16 || !absl::SimpleHexAtoi(parts[1], &parsed.incarnation)) return bad();
  if (parsed.send_task.empty() || parsed.recv_task.empty() || parsed.tensor.empty()) return bad();
  const std::pair<absl::string_view, absl::string_view> frame = absl::StrSplit(parts[4], absl::MaxSplits(':', 1));
  uint64_t id = 0;
  int64_t iteration = 0;
  if (!absl::SimpleAtoi(frame.first, &id) || !absl::SimpleAtoi(frame.second, &iteration)) return bad();
  return parsed;
}

bool DescribeTensorWait(absl::string_view key, const std::string& task, int64_t step_id, absl::Time since, Wait* wait) {
  const StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
  if (!parsed.ok()) return false;
  const std::string tensor(SentTensorName(parsed->tensor));
  *wait = {.node = tensor,
           .what = absl::StrCat("this tensor from ", task),
           .step_id = step_id,
           .since = since,
           .kind = Wait::Kind::kTensor,
           .peer = task,
           .tensor = tensor};
  return true;
}

void NoteTransfer(StepStatsCollector* stats, absl::string_view key, const RendezvousItem& item, int64_t start_nanos,
                  int64_t end_nanos) {
  const StatusOr<ParsedKey> parsed = ParsedKey::Parse(key);
  if (!parsed.ok() || parsed->send_task == parsed->recv_task)
    return;  // a feed of the client, which arrives with the call
  stats->RecordTransfer({.tensor = std::string(SentTensorName(parsed->tensor)),
                         .from = std::string(parsed->send_device),
                         .to = std::string(parsed->recv_device),
                         .bytes = item.is_dead ? 0 : static_cast<int64_t>(item.tensor.TotalBytes()),
                         .start_nanos = start_nanos,
                         .end_nanos = end_nanos,
                         .sent_micros = item.sent_micros});
}

}  // namespace millrace
