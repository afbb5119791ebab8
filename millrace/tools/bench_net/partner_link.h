// The connection to a partner, a process on this host or on another host.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/tools/bench_net/connection.h"
#include "millrace/tools/bench_net/touched_memory.h"

namespace millrace::bench_net {

// The destructor ends the partner's process, if it started one, and waits for it. Used by one thread at a time.
class PartnerLink {
 public:
  // Starts a process of this program on this host, which ends with this one. Must be called before any thread is
  // started.
  static StatusOr<std::unique_ptr<PartnerLink>> Start();
  // Connects to `millrace bench-net --listen` at "host:port".
  static StatusOr<std::unique_ptr<PartnerLink>> Connect(const std::string& address);
  ~PartnerLink();

  bool same_host() const { return child_ > 0; }
  const std::string& host() const { return host_; }  // the host to connect to
  const std::string& name() const { return name_; }  // the machine's own host name
  int cores() const { return cores_; }
  size_t max_size() const { return max_size_; }  // the largest transfer that it allows

  // Allocates memory on both sides. Must be called before the methods below.
  Status MakeMemory(size_t size);
  // The destination of transfers.
  char* here() const { return here_.data(); }
  size_t here_size() const { return here_.size(); }
  // The memory that a partner on the same host shares; null on another host.
  const char* shared() const { return shared_.data(); }

  // Sends a request over the data connection, initially a Unix socket, and reads the answer into here().
  Status Fetch(size_t size);
  // Sends a request that is answered by one byte instead of data.
  Status AskReady();
  // Reads from the memory of the partner's process.
  Status ReadProcess(size_t size);
  // Switches the data connection to TCP.
  Status UseTcp();
  // The port at which the partner serves kReadMethod over that kind of transport.
  StatusOr<int> OpenTransport(const std::string& kind);

 private:
  PartnerLink() = default;
  Status Greet();
  // Returns what follows "ok".
  StatusOr<std::string> Ask(absl::string_view line);
  StatusOr<std::string> ReadAnswer();

  std::string host_ = "localhost";
  std::string name_;
  int cores_ = 0;
  size_t max_size_ = 0;
  pid_t child_ = -1;
  Connection control_;
  Connection data_;
  Fd shared_file_;
  TouchedMemory here_;
  TouchedMemory shared_;
  pid_t remote_pid_ = 0;
  uintptr_t remote_address_ = 0;
};

}  // namespace millrace::bench_net
