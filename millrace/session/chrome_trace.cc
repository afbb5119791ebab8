#include "millrace/session/chrome_trace.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "millrace/executor/step_stats.h"

namespace millrace {
namespace {

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::string ChromeTrace(const pb::StepStats& stats) {
  std::string out = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  int pid = 0;
  bool first = true;
  const auto event = [&](const std::string& text) {
    absl::StrAppend(&out, first ? "" : ",\n", text);
    first = false;
  };
  for (const pb::DeviceStepStats& device : stats.dev_stats()) {
    event(absl::StrFormat(R"({"name": "process_name", "ph": "M", "pid": %d, "args": {"name": %s}})", pid,
                          JsonString(device.device())));
    for (const pb::NodeExecStats& node : device.node_stats()) {
      const std::string& label = node.timeline_label();
      const size_t equals = label.find(" = "), paren = label.find('(');
      const bool is_call = node.node_name() == kRecvTensor || node.node_name() == kRunGraph;
      const std::string op = is_call ? node.node_name()
                             : equals == std::string::npos || paren == std::string::npos
                                 ? "op"
                                 : label.substr(equals + 3, paren - equals - 3);
      int64_t bytes = 0;
      for (const auto& memory : node.memory()) bytes += memory.total_bytes();
      event(absl::StrFormat(R"({"name": %s, "cat": "Op", "ph": "X", "pid": %d, "tid": %d, "ts": %.3f, "dur": %.3f, )"
                            R"("args": {"name": %s, "label": %s, "bytes": %d}})",
                            JsonString(op), pid, node.thread_id(), node.all_start_nanos() / 1e3,
                            std::max<double>(node.all_end_rel_nanos(), 1) / 1e3, JsonString(node.node_name()),
                            JsonString(label), bytes));
    }
    ++pid;
  }
  return out + "\n]}\n";
}

}  // namespace millrace
