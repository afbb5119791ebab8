#include "millrace/dashboard/web_page.h"

#include <zlib.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace millrace::dashboard {
namespace {

using nlohmann::json;

constexpr absl::string_view kStyleTag = "<link rel=\"stylesheet\" href=\"style.css\">";
constexpr absl::string_view kScriptTag = "<script type=\"module\" src=\"main.js\"></script>";
constexpr absl::string_view kIconTag = "<link rel=\"icon\" href=\"icon.svg\">";
// Nothing from elsewhere, whatever is in the document.
constexpr absl::string_view kSavedPolicy =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src "
    "'unsafe-inline'\">";

// The module's text without what ties it to other files.
std::string Unbound(absl::string_view module) {
  std::string text;
  for (absl::string_view line : absl::StrSplit(module, '\n')) {
    if (absl::StartsWith(line, "import ")) continue;
    absl::ConsumePrefix(&line, "export ");
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string AllScripts() {
  std::string scripts;
  for (const WebFile& file : WebFiles()) {
    if (absl::EndsWith(file.name, ".js")) absl::StrAppend(&scripts, Unbound(file.text));
  }
  return scripts;
}

// JSON that does not end the element it stands in.
std::string ForScript(const json& value) {
  return absl::StrReplaceAll(value.dump(-1, ' ', false, json::error_handler_t::replace),
                             {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

}  // namespace

const WebFile* FindWebFile(absl::string_view name) {
  for (const WebFile& file : WebFiles()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string TypeOf(absl::string_view name) {
  const char* type = absl::EndsWith(name, ".js")    ? "text/javascript"
                     : absl::EndsWith(name, ".css") ? "text/css"
                     : absl::EndsWith(name, ".svg") ? "image/svg+xml"
                                                    : "text/html";
  return absl::StrCat(type, "; charset=utf-8");
}

std::string Gzip(absl::string_view text) {
  constexpr int kGzipFormat = 15 + 16;  // the largest window, with gzip's header
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipFormat, 9, Z_DEFAULT_STRATEGY) != Z_OK) return "";
  std::string packed(deflateBound(&stream, text.size()), 0);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const bool whole = deflate(&stream, Z_FINISH) == Z_STREAM_END;
  packed.resize(whole ? stream.total_out : 0);
  deflateEnd(&stream);
  return packed;
}

std::string SavedPage(const json& document, const std::map<std::string, std::string>& outputs) {
  const json saved = {{"document", document}, {"outputs", outputs}};
  return absl::StrReplaceAll(
      FindWebFile("index.html")->text,
      {{kIconTag, kSavedPolicy},
       {kStyleTag, absl::StrCat("<style>\n", FindWebFile("style.css")->text, "</style>")},
       {kScriptTag, absl::StrCat("<script type=\"application/json\" id=\"saved\">", ForScript(saved), "</script>\n",
                                 "<script type=\"module\">\n", AllScripts(), "</script>")}});
}

}  // namespace millrace::dashboard
