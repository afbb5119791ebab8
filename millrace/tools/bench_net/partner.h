// The other side of every measurement: a process that holds memory and sends as many bytes of it as requested.
//
// It is controlled by lines over a control connection:
//
//   hello VERSION     -> ok CORES MAX_SIZE NAME    the first line
//   memory SIZE       -> ok PID ADDRESS            allocates private memory, touched, and fills the shared file, if any
//   tcp               -> ok PORT                   listens there for one data connection
//   transport KIND    -> ok PORT                   serves kReadMethod there over that kind of net::Transport
//
// or `error TEXT` instead of ok. On a data connection each request is eight bytes, the number of bytes wanted in host
// byte order, and the answer is that many bytes. If kReady is set in the request, the answer is a single byte, which
// says that the requester may read the memory itself.
#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/tools/bench_net/connection.h"

namespace millrace::bench_net {

inline constexpr char kHello[] = "hello 1";
inline constexpr char kReadMethod[] = "/millrace.BenchNet/Read";
inline constexpr uint64_t kReady = uint64_t{1} << 63;
// The descriptors of a partner process that this program started.
inline constexpr int kControlFd = 0, kDataFd = 3, kSharedFd = 4;

struct PartnerOptions {
  std::string host = "localhost";  // the interface on which further ports are opened
  size_t max_size = 0;             // the largest transfer
  Connection data = {};            // a data connection that exists from the start
  Fd shared = {};                  // a shared-memory file to fill
};

// Serves until the control connection ends, and then returns OK.
Status ServePartner(Connection control, PartnerOptions options);

// `millrace bench-net-partner`, started by a bench-net on the same host. Returns the exit code.
int RunPartnerProcess();

}  // namespace millrace::bench_net
