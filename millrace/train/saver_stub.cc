// TEMPORARY until branch saver is merged.
#include "millrace/train/scaffold.h"
namespace millrace {
struct Saver::State {};
Saver::Saver(const Scope&, SaverOptions) {}
Saver::~Saver() = default;
StatusOr<std::string> Saver::Save(ClientSession*, const std::string&, const SaveOptions&) { return Unimplemented("saver"); }
Status Saver::Restore(ClientSession*, const std::string&) { return Unimplemented("saver"); }
std::vector<std::string> Saver::last_checkpoints() const { return {}; }
Status Saver::RecoverLastCheckpoints(const std::string&, const std::string&) { return absl::OkStatus(); }
StatusOr<std::string> LatestCheckpoint(const std::string&, const std::string&, FileSystem*) { return std::string(); }
}  // namespace millrace
