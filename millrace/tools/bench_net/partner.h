// The other side of every measurement: it has memory, and answers when it is asked for so many bytes of it.
//
// It is told what to do in lines over a control connection:
//
//   hello VERSION             -> ok CORES MAX_SIZE NAME    the first line
//   memory SIZE               -> ok PID ADDRESS            private memory of that size, touched; and the shared one, where there is one
//   tcp                       -> ok PORT                   listens there for one data connection
//   transport KIND            -> ok PORT                   serves kReadMethod there over that kind of net::Transport
//
// or `error TEXT` in place of ok. On a data connection each question is eight bytes (how many bytes are wanted, in the machine's own order),
// and the answer is that many. With kReady set in it, the answer is one byte that says: read it yourself.
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
// Of a process that this one started: its descriptors.
inline constexpr int kControlFd = 0, kDataFd = 3, kSharedFd = 4;

struct PartnerOptions {
  std::string host = "localhost";  // where further ports are opened
  size_t max_size = 0;             // more than that is not given
  Connection data = {};            // a connection that is there from the start
  Fd shared = {};                  // a file in memory to be filled
};

// Until the control connection ends, which is OK.
Status ServePartner(Connection control, PartnerOptions options);

// `millrace bench-net-partner`: started by a bench-net of the same host. Returns the exit code.
int RunPartnerProcess();

}  // namespace millrace::bench_net
