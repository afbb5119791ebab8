#include "millrace/train/checkpoint/checkpoint_state.h"

#include <cmath>
#include <limits>

#include "absl/strings/strip.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "millrace/io/bundle.h"
#include "millrace/proto/meta_graph.pb.h"

namespace millrace {
namespace {

// Room for a hundred thousand checkpoints.
constexpr uint64_t kMaxBytes = uint64_t{16} << 20;

// Keeps the parser's first error, which it would print by default.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Whole microseconds, which a double represents exactly for centuries to come, so that a time survives any number of
// round trips.
constexpr double kMaxSeconds = 9e9;

double Seconds(absl::Time time) {
  if (time == absl::InfiniteFuture()) return std::numeric_limits<double>::infinity();
  return static_cast<double>(absl::ToUnixMicros(time)) / 1e6;
}
absl::Time FromSeconds(double seconds) {
  if (!(seconds > 0)) return absl::InfinitePast();
  if (seconds > kMaxSeconds) return absl::InfiniteFuture();
  const int64_t micros = std::llround(seconds * 1e6);
  return micros > 0 ? absl::FromUnixMicros(micros) : absl::InfinitePast();
}

// "model-8" for "dir/model-8"; other paths are returned unchanged.
std::string RelativeTo(const std::string& directory, const std::string& prefix) {
  absl::string_view rest = prefix;
  if (directory == ".") return prefix;
  if (absl::ConsumePrefix(&rest, directory) && (absl::ConsumePrefix(&rest, "/") || directory.back() == '/') &&
      !rest.empty() && rest.front() != '/') {
    return std::string(rest);
  }
  return prefix;
}

}  // namespace

StatusOr<CheckpointState> ParseCheckpointState(absl::string_view text) {
  if (text.size() > kMaxBytes) return InvalidArgument("a list of checkpoints of ", text.size(), " bytes is too long");
  ::tensorflow::CheckpointState proto;
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  parser.AllowUnknownField(true);
  parser.SetRecursionLimit(32);
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, &proto)) return InvalidArgument("cannot parse the list of checkpoints: ", error.text());
  CheckpointState state;
  state.latest = proto.model_checkpoint_path();
  state.last_preserved = FromSeconds(proto.last_preserved_timestamp());
  for (int i = 0; i < proto.all_model_checkpoint_paths_size(); ++i) {
    const bool has_time = i < proto.all_model_checkpoint_timestamps_size();
    state.all.push_back({proto.all_model_checkpoint_paths(i),
                         has_time ? FromSeconds(proto.all_model_checkpoint_timestamps(i)) : absl::InfinitePast()});
  }
  // As in TensorFlow, the newest is part of the list.
  if (!state.latest.empty() && (state.all.empty() || state.all.back().prefix != state.latest)) {
    std::erase_if(state.all, [&](const CheckpointState::Kept& kept) { return kept.prefix == state.latest; });
    state.all.push_back({state.latest});
  }
  return state;
}

std::string FormatCheckpointState(const CheckpointState& state) {
  ::tensorflow::CheckpointState proto;
  proto.set_model_checkpoint_path(state.latest);
  bool has_times = true;
  for (const CheckpointState::Kept& kept : state.all) {
    proto.add_all_model_checkpoint_paths(kept.prefix);
    has_times = has_times && kept.time != absl::InfinitePast();
  }
  // Readers require a time for each checkpoint or none at all.
  if (has_times) {
    for (const CheckpointState::Kept& kept : state.all) proto.add_all_model_checkpoint_timestamps(Seconds(kept.time));
  }
  if (state.last_preserved != absl::InfinitePast()) proto.set_last_preserved_timestamp(Seconds(state.last_preserved));
  std::string text;
  google::protobuf::TextFormat::PrintToString(proto, &text);
  return text;
}

StatusOr<CheckpointState> ReadCheckpointState(FileSystem* files, const std::string& directory,
                                              const std::string& filename) {
  const std::string path = JoinPath(directory, filename);
  MR_RETURN_IF_ERROR(files->Exists(path));
  MR_ASSIGN_OR_RETURN(const uint64_t size, files->FileSize(path));
  if (size > kMaxBytes) return DataLoss(path, " is not a list of checkpoints: it has ", size, " bytes");
  MR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files, path));
  StatusOr<CheckpointState> state = ParseCheckpointState(text);
  if (!state.ok()) return DataLoss(path, ": ", state.status().message());
  if (directory == ".") return state;  // relative paths already are relative to it
  if (!state->latest.empty()) state->latest = JoinPath(directory, state->latest);
  for (CheckpointState::Kept& kept : state->all) kept.prefix = JoinPath(directory, kept.prefix);
  return state;
}

Status WriteCheckpointState(FileSystem* files, const std::string& directory, const CheckpointState& state,
                            const std::string& filename) {
  CheckpointState relative = state;
  relative.latest = RelativeTo(directory, state.latest);
  for (CheckpointState::Kept& kept : relative.all) kept.prefix = RelativeTo(directory, kept.prefix);
  MR_RETURN_IF_ERROR(ReplaceFile(files, JoinPath(directory, filename), FormatCheckpointState(relative)));
  return files->SyncDirectory(directory);
}

Status CheckCheckpoint(FileSystem* files, const std::string& prefix) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(files, prefix));
  std::vector<std::string> names;
  MR_RETURN_IF_ERROR(reader->ForEach([&](absl::string_view name, const pb::BundleEntryProto&) {
    names.emplace_back(name);
    return absl::OkStatus();
  }));
  for (const std::string& name : names) {
    const Status found = reader->Find(name).status();
    // A tensor of a type that Millrace cannot restore is not damaged.
    if (absl::IsUnimplemented(found)) continue;
    // The index exists, so a missing data file means damage.
    if (absl::IsNotFound(found)) return DataLoss("checkpoint ", prefix, ": ", found.message());
    MR_RETURN_IF_ERROR(found);
  }
  return absl::OkStatus();
}

}  // namespace millrace
