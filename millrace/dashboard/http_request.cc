#include "millrace/dashboard/http_request.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace millrace::dashboard {
namespace {

constexpr absl::string_view kEnd = "\r\n\r\n";

bool IsTokenChar(char c) { return absl::ascii_isalnum(c) || absl::StrContains("!#$%&'*+-.^_`|~", c); }
bool IsToken(absl::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar); }

// Printable, without spaces. Bytes above ASCII do not belong into a target.
bool IsTarget(absl::string_view text) {
  return absl::StartsWith(text, "/") &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
}

bool IsValue(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return absl::ascii_iscntrl(c) && c != '\t'; });
}

int HexValue(char c) {
  if (absl::ascii_isdigit(c)) return c - '0';
  return absl::ascii_isxdigit(c) ? absl::ascii_tolower(c) - 'a' + 10 : -1;
}

std::string PercentDecode(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexValue(text[i + 1]) >= 0 && HexValue(text[i + 2]) >= 0) {
      decoded.push_back(static_cast<char>(16 * HexValue(text[i + 1]) + HexValue(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

Status ParseRequestLine(absl::string_view line, HttpRequest* request) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !IsToken(words[0])) return InvalidArgument("the request line is malformed");
  if (!IsTarget(words[1])) return InvalidArgument("the request's target is not a path");
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") return Unimplemented("only HTTP/1.0 and 1.1 are spoken here");
  request->method = std::string(words[0]);
  const size_t question = words[1].find('?');
  request->path = std::string(words[1].substr(0, question));
  if (question != absl::string_view::npos) request->query = std::string(words[1].substr(question + 1));
  request->keep_alive = words[2] == "HTTP/1.1";
  return absl::OkStatus();
}

Status ParseHeader(absl::string_view line, HttpRequest* request) {
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos || !IsToken(line.substr(0, colon)))
    return InvalidArgument("a header has no name");
  const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (!IsValue(value)) return InvalidArgument("a header has control characters");
  request->headers.emplace_back(absl::AsciiStrToLower(line.substr(0, colon)), std::string(value));
  return absl::OkStatus();
}

Status CheckHeaders(HttpRequest* request) {
  if (!request->Header("host")) return InvalidArgument("give one Host");
  for (const auto& [name, value] : request->headers) {
    if (name == "transfer-encoding" || (name == "content-length" && value != "0"))
      return Unimplemented("requests have no body here");
  }
  const std::string connection = absl::AsciiStrToLower(request->Header("connection").value_or(""));
  if (absl::StrContains(connection, "close")) request->keep_alive = false;
  return absl::OkStatus();
}

}  // namespace

size_t HeadSize(absl::string_view bytes) {
  const size_t end = bytes.find(kEnd);
  return end == absl::string_view::npos ? 0 : end + kEnd.size();
}

StatusOr<HttpRequest> ParseHttpRequest(absl::string_view head) {
  if (HeadSize(head) != head.size() || head.empty()) return InvalidArgument("the request's head is not complete");
  head.remove_suffix(kEnd.size());
  const std::vector<absl::string_view> lines = absl::StrSplit(head, "\r\n");
  if (lines.size() > HttpRequest::kMaxHeaders + 1) return InvalidArgument("too many headers");
  HttpRequest request;
  MR_RETURN_IF_ERROR(ParseRequestLine(lines[0], &request));
  for (size_t i = 1; i < lines.size(); ++i) MR_RETURN_IF_ERROR(ParseHeader(lines[i], &request));
  MR_RETURN_IF_ERROR(CheckHeaders(&request));
  return request;
}

std::optional<absl::string_view> HttpRequest::Header(absl::string_view name) const {
  std::optional<absl::string_view> found;
  for (const auto& [key, value] : headers) {
    if (key != name) continue;
    if (found) return std::nullopt;
    found = value;
  }
  return found;
}

absl::string_view HttpRequest::Cookie(absl::string_view name) const {
  for (const absl::string_view part : absl::StrSplit(Header("cookie").value_or(""), ';')) {
    const absl::string_view cookie = absl::StripAsciiWhitespace(part);
    const size_t equals = cookie.find('=');
    if (equals != absl::string_view::npos && cookie.substr(0, equals) == name) return cookie.substr(equals + 1);
  }
  return "";
}

std::string HttpRequest::Parameter(absl::string_view name) const {
  for (const absl::string_view part : absl::StrSplit(query, '&')) {
    const size_t equals = part.find('=');
    if (equals != absl::string_view::npos && part.substr(0, equals) == name)
      return PercentDecode(part.substr(equals + 1));
  }
  return "";
}

}  // namespace millrace::dashboard
