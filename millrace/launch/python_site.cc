#include "millrace/launch/python_site.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"

namespace millrace::launch {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libmillrace_c.so";

struct PythonPlace {
  const char* package;  // relative to the folder of the command
  const char* library;  // relative to the package
};
// A wheel, a build tree, an installed package.
constexpr PythonPlace kPythonPlaces[] = {
    {"..", "lib"}, {"../python/millrace", ".."}, {"../lib/millrace/python/millrace", ".."}};

}  // namespace

StatusOr<std::string> FindPythonSite(const std::string& command) {
  std::error_code error;
  std::vector<std::string> looked;
  for (const PythonPlace& place : kPythonPlaces) {
    const fs::path package = (fs::path(command).parent_path() / place.package).lexically_normal();
    const fs::path site = package / "launch_site";
    if (!fs::exists(site / "sitecustomize.py", error)) {
      looked.push_back(site.string());
      continue;
    }
    const fs::path library = (package / place.library / kLibrary).lexically_normal();
    if (!fs::exists(library, error))
      return NotFound("there is no ", library.string(), ": in a build tree, `ninja millrace_c` makes it");
    if (absl::StrContains(site.string(), ":"))
      return InvalidArgument("PYTHONPATH cannot hold ", site.string(), ", which has a colon");
    return site.string();
  }
  return NotFound("this command has no Python package beside it (looked for ", absl::StrJoin(looked, ", "),
                  "); the wheel has one: pip install \"$(python/build)\"");
}

Status AddPythonSite(std::vector<std::string>* environment) {
  const std::string wanted = absl::StrCat(kPythonServersVariable, "=1");
  if (std::find(environment->begin(), environment->end(), wanted) == environment->end()) return absl::OkStatus();
  std::error_code error;
  MR_ASSIGN_OR_RETURN(std::string path, FindPythonSite(fs::read_symlink("/proc/self/exe", error).string()));
  constexpr absl::string_view kName = "PYTHONPATH=";
  const auto given = std::find_if(environment->begin(), environment->end(),
                                  [&](const std::string& entry) { return absl::StartsWith(entry, kName); });
  const char* inherited = std::getenv("PYTHONPATH");
  const std::string rest = given != environment->end() ? given->substr(kName.size()) : inherited ? inherited : "";
  if (given != environment->end()) environment->erase(given);
  environment->push_back(absl::StrCat(kName, path, rest.empty() ? "" : ":", rest));
  return absl::OkStatus();
}

}  // namespace millrace::launch
