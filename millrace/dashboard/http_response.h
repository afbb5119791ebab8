// The answer to a request.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace::dashboard {

using SharedText = std::shared_ptr<const std::string>;

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  SharedText body = {};  // null: empty
  std::vector<std::pair<std::string, std::string>> headers = {};
  // The connection becomes a stream: after `body`, it gets what HttpServer::Broadcast sends.
  bool stream = false;
  // Who asked is known; its connection is not closed in favour of others.
  bool trusted = false;

  static HttpResponse Text(int status, std::string text);
  // The HTTP status that stands for the error, and its message.
  static HttpResponse Error(const Status& status);

  // The status line and all headers, among them those that keep a browser from doing anything with the answer but
  // what the page's own scripts do.
  std::string Head(bool keep_alive) const;
};

}  // namespace millrace::dashboard
