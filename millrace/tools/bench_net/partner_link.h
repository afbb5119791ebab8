// This side's end of a partner, in a process of this host or on another host.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/tools/bench_net/connection.h"
#include "millrace/tools/bench_net/touched_memory.h"

namespace millrace::bench_net {

// Its end ends the partner's process, where it started one, and waits for that. One thread at a time.
class PartnerLink {
 public:
  // A process of this program on this host, which ends with this one. Before any thread is started.
  static StatusOr<std::unique_ptr<PartnerLink>> Start();
  // `millrace bench-net --listen` at "host:port".
  static StatusOr<std::unique_ptr<PartnerLink>> Connect(const std::string& address);
  ~PartnerLink();

  bool same_host() const { return child_ > 0; }
  const std::string& host() const { return host_; }  // to connect to
  const std::string& name() const { return name_; }  // as the machine calls itself
  int cores() const { return cores_; }
  size_t max_size() const { return max_size_; }      // what it is willing to give

  // Memory on both sides; before what follows.
  Status MakeMemory(size_t size);
  // Where what is transferred goes.
  char* here() const { return here_.data(); }
  size_t here_size() const { return here_.size(); }
  // What the partner's process shares, of the same host; null on another one.
  const char* shared() const { return shared_.data(); }

  // Asks over the data connection, which is a Unix socket at first, and reads the answer into here().
  Status Fetch(size_t size);
  // Asks and is told only that it is there.
  Status AskReady();
  // Reads out of the memory of the partner's process.
  Status ReadProcess(size_t size);
  // From now on the data connection is one of TCP.
  Status UseTcp();
  // The port at which the partner serves kReadMethod over that kind of transport.
  StatusOr<int> OpenTransport(const std::string& kind);

 private:
  PartnerLink() = default;
  Status Greet();
  // What follows "ok".
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
