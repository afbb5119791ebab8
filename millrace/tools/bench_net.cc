// millrace bench-net: measures the bandwidth between processes or hosts, and how much of it Millrace reaches.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "millrace/base/file.h"
#include "millrace/base/process_usage.h"
#include "millrace/net/address.h"
#include "millrace/tools/bench_net/figures.h"
#include "millrace/tools/bench_net/figures_text.h"
#include "millrace/tools/bench_net/partner.h"
#include "millrace/tools/command.h"

namespace millrace {
namespace {

struct BenchNetFlags {
  std::string listen, peer;
  std::string max_size = "1GB";
  double seconds = 20;
  std::string json;
  bool ascii = false;
};

// The number of blocks of the largest size that exist at once on this host, in both processes if they share it.
constexpr size_t kBlocksForTwo = 6, kBlocksForOne = 4;

Status CheckFlags(const BenchNetFlags& flags, size_t* max_size) {
  if (!flags.listen.empty() && !flags.peer.empty())
    return InvalidArgument("give --listen on one host and --peer on the other, not both");
  for (const auto& [flag, value] : {std::pair("--listen", &flags.listen), std::pair("--peer", &flags.peer)}) {
    if (value->empty()) continue;
    if (const Status status = net::ParseHostPort(*value).status(); !status.ok())
      return InvalidArgument(flag, ": ", status.message());
  }
  if (!flags.listen.empty() && (!flags.json.empty() || flags.ascii))
    return InvalidArgument("use --json and --ascii with --peer: that side shows the figures");
  if (!(flags.seconds > 0) || flags.seconds > 3600)
    return InvalidArgument("--seconds is ", flags.seconds, "; give a number above 0 and of at most 3600");
  const StatusOr<size_t> size = bench_net::ParseSize(flags.max_size);
  if (!size.ok()) return InvalidArgument("--max_size: ", size.status().message());
  if (*size < 1000) return InvalidArgument("--max_size is ", *size, " bytes; it must be at least 1KB");
  *max_size = *size;
  return absl::OkStatus();
}

// Serves one partner after another until interrupted.
Status Listen(const BenchNetFlags& flags, size_t max_size) {
  MR_ASSIGN_OR_RETURN(const net::HostPort where, net::ParseHostPort(flags.listen));
  MR_ASSIGN_OR_RETURN(const bench_net::TcpListener listener, bench_net::ListenTcp(where.host, where.port));
  std::cout << "millrace bench-net: listens at " << net::JoinHostPort(where.host, listener.port)
            << "; on the other host: millrace bench-net --peer " << net::JoinHostPort(where.host, listener.port)
            << std::endl;
  while (true) {
    MR_ASSIGN_OR_RETURN(bench_net::Connection control, bench_net::AcceptTcp(listener, -1));
    const size_t size = std::min(max_size, AvailableMemory() / kBlocksForOne);
    const Status status = bench_net::ServePartner(std::move(control), {.host = where.host, .max_size = size});
    std::cout << "millrace bench-net: a peer "
              << (status.ok() ? "was served" : absl::StrCat("was refused: ", status.message())) << std::endl;
  }
}

StatusOr<bench_net::NetFigures> Measure(const BenchNetFlags& flags, size_t max_size) {
  const bool alone = flags.peer.empty();
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<bench_net::PartnerLink> partner,
                      alone ? bench_net::PartnerLink::Start() : bench_net::PartnerLink::Connect(flags.peer));
  const size_t size =
      std::min({max_size, partner->max_size(), AvailableMemory() / (alone ? kBlocksForTwo : kBlocksForOne)});
  if (bench_net::SizesUpTo(size).size() < bench_net::SizesUpTo(max_size).size()) {
    std::cerr << "millrace bench-net: the largest message is " << bench_net::SizeText(size)
              << ", less than --max_size, for lack of memory\n";
  }
  bench_net::MeasureOptions options{.max_size = size, .seconds = flags.seconds};
  const bool shows_progress = isatty(STDERR_FILENO) != 0;
  if (shows_progress)
    options.on_progress = [](const std::string& what) { std::cerr << "\r\033[K" << what << " ..." << std::flush; };
  StatusOr<bench_net::NetFigures> figures = bench_net::MeasureWays(partner.get(), options);
  if (shows_progress) std::cerr << "\r\033[K" << std::flush;
  if (figures.ok() && !alone) figures->where = absl::StrCat("this host and ", partner->name(), " at ", flags.peer);
  if (!figures.ok())
    return WithPrefix(
        alone ? "the partner process was lost: " : absl::StrCat("the peer at ", flags.peer, " was lost: "),
        figures.status());
  return figures;
}

int BenchNet(const BenchNetFlags& flags) {
  size_t max_size = 0;
  if (const Status status = CheckFlags(flags, &max_size); !status.ok()) return Fail("bench-net", status, 2);
  if (!flags.listen.empty()) return Fail("bench-net", Listen(flags, max_size), 1);
  // Checked first, so that a minute of measuring does not end with a file that cannot be written.
  if (!flags.json.empty() && (access(DirectoryOf(flags.json).c_str(), W_OK) != 0 ||
                              FileSystem::Posix()->IsDirectory(flags.json).value_or(false))) {
    return Fail("bench-net", InvalidArgument("--json: cannot write the file '", flags.json, "'"), 2);
  }
  const StatusOr<bench_net::NetFigures> figures = Measure(flags, max_size);
  if (!figures.ok()) return Fail("bench-net", figures.status(), 1);
  std::cout << bench_net::FiguresTable(*figures) << "\n" << bench_net::FiguresPlot(*figures, flags.ascii) << std::flush;
  if (!flags.json.empty()) {
    if (const Status status = ReplaceFile(FileSystem::Posix(), flags.json, bench_net::FiguresJson(*figures));
        !status.ok()) {
      return Fail("bench-net", WithPrefix("--json: ", status), 1);
    }
  }
  return 0;
}

}  // namespace

std::function<int()> AddBenchNet(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* bench = app.add_subcommand("bench-net",
                                       "Measures the bandwidth between two processes of this host or between two "
                                       "hosts, and how much of it Millrace reaches");
  auto flags = std::make_shared<BenchNetFlags>();
  bench->add_option(
      "--listen", flags->listen,
      "Serves the other side of --peer at host:port until interrupted; further ports are chosen by the system");
  bench->add_option("--peer", flags->peer,
                    "Measures against `millrace bench-net --listen` at host:port. Default: two processes of this "
                    "host");
  bench->add_option("--max_size", flags->max_size, "The largest message, 1KB to 1GB; less if memory is short")
      ->capture_default_str();
  bench
      ->add_option("--seconds", flags->seconds,
                   "Approximate duration in seconds; sizes that would take too long are left out")
      ->capture_default_str();
  bench->add_option("--json", flags->json, "Also writes the figures to this file");
  bench->add_flag("--ascii", flags->ascii, "Draws the plot with ASCII characters");
  bench->footer(
      "Each transfer is requested by a small message, like a call, and ends in memory that has been touched before; "
      "figures are medians.\n"
      "Exit code: 0 on success, 1 if the other side was lost, 2 for an error in the flags.\n"
      "Examples:\n"
      "  millrace bench-net\n"
      "  millrace bench-net --listen 0.0.0.0:2300     # on one host\n"
      "  millrace bench-net --peer that-host:2300     # on the other");
  *command = bench;
  return [flags] { return BenchNet(*flags); };
}

}  // namespace millrace
