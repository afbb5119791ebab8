// The dashboard of a job or a cluster: a web page and metrics, served until it is told to end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/dashboard/watcher.h"

namespace millrace::dashboard {

struct DashboardOptions {
  WatcherOptions watch = {};
  // Where it listens. Beyond the loopback interface only with a certificate.
  std::string host = "localhost";
  int port = 0;                            // 0: the system chooses
  std::string certificate = {}, key = {};  // PEM; empty: no TLS
  // Further host names under which browsers may ask it.
  std::vector<std::string> host_names = {};
  std::string token = {};  // empty: a random one
  std::string save = {};   // a file to which the page is written at the end; empty: none
  // Called once with the page's address, when it can be opened.
  std::function<void(const std::string& url)> tell = nullptr;
};

// INVALID_ARGUMENT if the page cannot be saved in that file, as far as can be seen before.
Status CheckSave(const std::string& file);

// Blocks until SIGINT or SIGTERM. INVALID_ARGUMENT for options that contradict each other, NOT_FOUND without such a
// job. Must be called before any other thread of the process exists.
Status RunDashboard(const DashboardOptions& options);

}  // namespace millrace::dashboard
