// The little that Millrace asks of a Kubernetes API server, from within a pod.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "millrace/base/status.h"

namespace millrace {

struct HttpAnswer {
  int code = 0;
  std::string body;
};

// Parses the whole answer of an HTTP/1.0 server. INVALID_ARGUMENT says what is malformed.
StatusOr<HttpAnswer> ParseHttpAnswer(absl::string_view bytes);

// Whether a Job, as the API server describes it, has ended: "Complete", "Failed", or empty. INVALID_ARGUMENT if it is
// no description of a Job.
StatusOr<std::string> EndOfJob(const std::string& json);

// The API server of the cluster that this pod is in, as the pod's environment and its mounted service account say.
struct KubernetesApi {
  std::string host = {}, port = {}, name_space = {}, folder = {};

  // FAILED_PRECONDITION outside of a pod, or if it has no token.
  static StatusOr<KubernetesApi> OfThisPod();
  // One request over a connection of its own, with the token as it is now (it is renewed from time to time). Blocks for
  // `timeout` at most; UNAVAILABLE or DEADLINE_EXCEEDED if there was no answer.
  StatusOr<HttpAnswer> Ask(const std::string& method, const std::string& path, absl::Duration timeout) const;
};

}  // namespace millrace
