// exchange_recorder: see README.md.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/strip.h"
#include "examples/parse_flags.h"
#include "millrace/cluster/server.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "tests/exchanges/recorder.h"
#include "tests/late/late_device.h"

namespace millrace::exchanges {
namespace {

struct Flags {
  std::string out;
  std::string target;
  bool late = false;
};

Status RecordTo(const Flags& flags) {
  std::unique_ptr<Server> own;
  std::string target = flags.target;
  if (target.empty()) {
    if (flags.late) late::UseLateGpus(1);
    MR_ASSIGN_OR_RETURN(own, Server::CreateLocalServer());
    target = own->target();
  }
  const std::unique_ptr<net::Transport> transport = net::NewGrpcTransport();
  Recorder recorder(transport->Connect(std::string(absl::StripPrefix(target, "grpc://"))));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<net::Listener> listener, transport->Listen("127.0.0.1:0", &recorder));
  std::cout << "grpc://127.0.0.1:" << listener->port() << std::endl;  // flushed: somebody waits for it
  while (std::cin.ignore()) {
  }
  listener->Stop();
  MR_ASSIGN_OR_RETURN(const std::vector<Exchange> exchanges, recorder.exchanges());
  std::ofstream out(flags.out, std::ios::binary);
  out << Write(exchanges);
  out.close();
  return out ? absl::OkStatus() : Internal("cannot write ", flags.out);
}

}  // namespace
}  // namespace millrace::exchanges

int main(int argc, char** argv) {
  millrace::exchanges::Flags flags;
  CLI::App app(
      "Prints a target for a client, passes its calls on to a server until its standard input ends, and writes "
      "what both said to a file.",
      "exchange_recorder");
  app.add_option("--out", flags.out, "the file")->required();
  auto* const target =
      app.add_option("--target", flags.target, "the server, grpc://host:port; by default, one of its own");
  app.add_flag("--late", flags.late, "its own server has a GPU that is made of host memory (tests/late)")
      ->excludes(target);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  const millrace::Status status = millrace::exchanges::RecordTo(flags);
  if (status.ok()) return 0;
  std::cerr << "exchange_recorder: " << status.message() << "\n";
  return 1;
}
