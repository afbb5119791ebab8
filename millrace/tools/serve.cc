// millrace serve: runs one task of a cluster until it is stopped.
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "millrace/base/file.h"
#include "millrace/base/notice.h"
#include "millrace/cluster/server.h"
#include "millrace/cluster/server_access.h"
#include "millrace/net/address.h"
#include "millrace/tools/command.h"
#include "millrace/tools/place_flags.h"
#include "millrace/tools/tls_flags.h"

namespace millrace {
namespace {

struct ServeFlags {
  // --from_scheduler: the cluster and this task are those of `millrace place`.
  bool from_scheduler = false;
  PlaceFlags place;
  std::string cluster_spec, ps_hosts, worker_hosts, chief_hosts, evaluator_hosts;
  std::string job_name;
  int task_index = 0;
  int intra_op_threads = 0, inter_op_threads = 0;
  int cpu_devices = 1, gpu_devices = -1;
  size_t gpu_memory_limit = 0;
  int virtual_gpus = 1;
  std::string collective_group_leader;
  std::vector<std::string> file_roots;
  TlsFlags tls;
  bool insecure = false;
  bool client_clusters = false;
  std::string transport;
  double peer_timeout = 5;
  double missing_task_timeout = 600;
  double session_grace = 30;
  size_t memory_limit = 0, session_memory_limit = 0;
  int file_threads = 16;
  double stop_timeout = 10;
};

// 2 for errors in the flags and for files that they name but that do not exist.
int FailToServe(const Status& status) {
  const bool in_flags =
      absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
  return Fail("serve", status, in_flags ? 2 : 1);
}

StatusOr<ClusterSpec> ClusterOf(const ServeFlags& flags) {
  const std::vector<std::pair<const char*, const std::string*>> lists = {{"ps", &flags.ps_hosts},
                                                                         {"worker", &flags.worker_hosts},
                                                                         {"chief", &flags.chief_hosts},
                                                                         {"evaluator", &flags.evaluator_hosts}};
  std::map<std::string, std::vector<std::string>> jobs;
  for (const auto& [job, hosts] : lists) {
    if (!hosts->empty()) jobs[job] = absl::StrSplit(*hosts, ',');
  }
  if (!flags.cluster_spec.empty()) {
    if (!jobs.empty()) return InvalidArgument("give either --cluster_spec or the lists of hosts, not both");
    return ClusterSpec::Parse(flags.cluster_spec);
  }
  if (jobs.empty()) {
    return InvalidArgument(
        "no cluster: give --cluster_spec='ps|host:port,worker|host:port;host:port', or --ps_hosts and --worker_hosts");
  }
  return ClusterSpec::Of(jobs);
}

StatusOr<std::unique_ptr<Server>> StartServer(const ServeFlags& flags) {
  MR_ASSIGN_OR_RETURN(const ClusterSpec cluster, ClusterOf(flags));
  if (flags.job_name.empty()) {
    std::vector<std::string> jobs;
    for (const auto& [job, tasks] : cluster.jobs()) jobs.push_back(job);
    return InvalidArgument("which task is this? Give --job_name (one of: ", absl::StrJoin(jobs, ", "),
                           ") and --task_index");
  }
  for (const auto& [flag, value] :
       {std::pair("--peer_timeout", flags.peer_timeout), std::pair("--stop_timeout", flags.stop_timeout),
        std::pair("--missing_task_timeout", flags.missing_task_timeout)}) {
    if (!(value > 0)) return InvalidArgument(flag, " is ", value, "; give a number of seconds above 0");
  }
  for (const std::string& root : flags.file_roots) {
    if (!FileSystem::Posix()->IsDirectory(root).value_or(false))
      return InvalidArgument("--file_root: '", root, "' is not a directory; create it first");
  }
  ServerOptions options;
  options.intra_op_threads = flags.intra_op_threads;
  options.inter_op_threads = flags.inter_op_threads;
  options.cpu_devices = flags.cpu_devices;
  if (!flags.collective_group_leader.empty()) {
    options.default_config.mutable_experimental()->set_collective_group_leader(flags.collective_group_leader);
  }
  options.gpu_devices = flags.gpu_devices;
  options.gpu_memory_limit = flags.gpu_memory_limit;
  if (flags.virtual_gpus < 1)
    return InvalidArgument("--virtual_gpus is ", flags.virtual_gpus, "; give the number of devices on each card");
  if (flags.virtual_gpus > 1) {
    auto* const gpus = options.default_config.mutable_gpu_options()->mutable_experimental();
    gpus->set_num_virtual_devices_per_gpu(flags.virtual_gpus);
  }
  options.file_roots = flags.file_roots;
  options.peer_timeout = absl::Seconds(flags.peer_timeout);
  options.missing_task_timeout = absl::Seconds(flags.missing_task_timeout);
  options.session_grace = flags.session_grace < 0 ? absl::InfiniteDuration() : absl::Seconds(flags.session_grace);
  options.step_transport = flags.transport;
  options.file_threads = flags.file_threads;
  options.memory_limit = flags.memory_limit;
  options.session_memory_limit = flags.session_memory_limit;
  MR_ASSIGN_OR_RETURN(options.tls, flags.tls.Read());
  options.insecure = flags.insecure;
  if (flags.client_clusters) options.client_clusters = true;
  return Server::Start(cluster, flags.job_name, flags.task_index, options);
}

// Whether other machines can reach it.
bool IsOpen(const Server& server) {
  const StatusOr<net::HostPort> address = net::ParseHostPort(server.cluster().Address(server.task()).value_or(""));
  return address.ok() && !net::IsLoopback(address->host);
}

// The files that graphs may use, for the first line; nothing if they may use all.
std::string FilesOf(const ServerAccess& access) {
  if (access.no_files) return ", no files (--file_root)";
  return access.file_roots.empty() ? "" : ", files in " + absl::StrJoin(access.file_roots, " and ");
}

// This command again, as the program of the task that this process is: with the flags that are not about its place.
int ServeFromScheduler(const CLI::App& command, PlaceFlags place) {
  std::error_code error;
  std::vector<std::string> program = {std::filesystem::read_symlink("/proc/self/exe", error).string(), "serve",
                                      "--cluster_spec={cluster_spec}", "--job_name={job_name}",
                                      "--task_index={task_index}"};
  const std::set<std::string> of_place = {"--from_scheduler", "--ps",      "--workers", "--job",           "--side_job",
                                          "--rank",           "--size",    "--meet",    "--start_timeout", "--address",
                                          "--port",           "--explain", "--help"};
  const std::set<std::string> of_cluster = {"--cluster_spec", "--job_name",    "--task_index",     "--ps_hosts",
                                            "--worker_hosts", "--chief_hosts", "--evaluator_hosts"};
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || of_place.contains(name)) continue;
    if (of_cluster.contains(name))
      return Fail("serve", InvalidArgument("give either ", name, " or --from_scheduler, not both"), 2);
    for (const std::string& value : option->results()) program.push_back(absl::StrCat(name, "=", value));
  }
  return RunPlaceCommand(place, program);
}

int Serve(const ServeFlags& flags) {
  // Before any thread starts, so that all threads inherit the mask and the signals are left to this thread.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  signal(SIGPIPE, SIG_IGN);
  // SIGTERM is a notice.
  std::atomic<int> ended_by{SIGINT};
  Notice notice;
  const NoticeSubscription notices = OnNotice([&, waiting = pthread_self()](const Notice& given) {
    notice = given;
    ended_by = given.signal;
    pthread_kill(waiting, SIGINT);
  });

  StatusOr<std::unique_ptr<Server>> server = StartServer(flags);
  if (!server.ok()) return FailToServe(server.status());
  std::cout << "millrace: " << (*server)->task().name() << " serves at " << (*server)->target() << " with "
            << absl::StrJoin((*server)->devices(), ", ") << (IsOpen(**server) ? ", on all interfaces" : "")
            << ((*server)->access().tls == nullptr ? "" : ", TLS") << FilesOf((*server)->access()) << std::endl;
  int signal_number = 0;
  sigwait(&ending, &signal_number);
  std::cout << "millrace: " << (*server)->task().name() << " ends (" << Notice{.signal = ended_by}.SignalName() << ")"
            << std::endl;
  if (ended_by != SIGINT) (*server)->ServeOut(notice);
  if (const Status stopped = (*server)->StopWithin(absl::Seconds(flags.stop_timeout)); !stopped.ok()) {
    // A thread is stuck in the operating system; returning would wait for it.
    std::cerr << "millrace serve: " << stopped.message() << std::endl;
    std::_Exit(1);
  }
  return 0;
}

}  // namespace

std::function<int()> AddServe(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* serve = app.add_subcommand(
      "serve", "Runs one task of a cluster, a master and a worker, at the task's address in the cluster spec");
  auto flags = std::make_shared<ServeFlags>();
  serve->add_option("--cluster_spec", flags->cluster_spec,
                    "The tasks of the cluster: 'job|host:port;host:port,job|host:port'");
  serve->add_option("--ps_hosts", flags->ps_hosts,
                    "Instead of --cluster_spec: the tasks of job ps, 'host:port,host:port'");
  serve->add_option("--worker_hosts", flags->worker_hosts, "Instead of --cluster_spec: the tasks of job worker");
  serve->add_option("--chief_hosts", flags->chief_hosts, "Instead of --cluster_spec: the tasks of job chief");
  serve->add_option("--evaluator_hosts", flags->evaluator_hosts,
                    "Instead of --cluster_spec: the tasks of job evaluator");
  serve->add_option("--job_name", flags->job_name, "The job of this task");
  serve->add_option("--task_index", flags->task_index, "The index of this task in its job")->capture_default_str();
  serve->add_option("--intra_op_threads", flags->intra_op_threads, "Threads within one op; 0: one per core")
      ->capture_default_str();
  serve->add_option("--inter_op_threads", flags->inter_op_threads, "Threads that run ops concurrently; 0: one per core")
      ->capture_default_str();
  serve->add_option("--cpu_devices", flags->cpu_devices, "Number of CPU devices")->capture_default_str();
  serve->add_option("--collective_group_leader", flags->collective_group_leader,
                    "The task that forms the groups of collective ops (CollectiveReduce ...), such as "
                    "/job:worker/task:0, for sessions whose ConfigProto names none");
  serve
      ->add_option("--gpu_devices", flags->gpu_devices,
                   "Maximum number of GPU devices; -1: all in CUDA_VISIBLE_DEVICES")
      ->capture_default_str();
  serve
      ->add_option("--gpu_memory_limit", flags->gpu_memory_limit,
                   "Bytes that tensors may take on each GPU device, as in 8GB; an op that needs more fails with "
                   "RESOURCE_EXHAUSTED. 0: all of its memory")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->capture_default_str();
  serve
      ->add_option("--virtual_gpus", flags->virtual_gpus,
                   "Number of GPU devices that each card is, with an equal share of its memory")
      ->capture_default_str();
  serve->add_option(
      "--file_root", flags->file_roots,
      "Restricts the files that ops read and write to this directory; may be repeated. Default: all files "
      "on the loopback interface, none where other machines can reach the server");
  serve
      ->add_option("--file_threads", flags->file_threads,
                   "Operations on files that run at once, on threads of their own; the others wait in line")
      ->capture_default_str();
  serve
      ->add_option("--stop_timeout", flags->stop_timeout,
                   "Seconds after SIGTERM or SIGINT in which operations must end; then the process ends anyway, says "
                   "what did not end, and its exit code is 1")
      ->capture_default_str();
  serve
      ->add_option("--memory_limit", flags->memory_limit,
                   "Bytes that tensors may take in this process, as in 8GB; an op that needs more fails with "
                   "RESOURCE_EXHAUSTED. 0: the memory of the machine or of the cgroup")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->capture_default_str();
  serve
      ->add_option("--session_memory_limit", flags->session_memory_limit,
                   "The same for each session, with what variables and queues keep of its results. 0: no limit")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->capture_default_str();
  serve->add_flag("--from_scheduler", flags->from_scheduler,
                  "Takes the cluster and this task from the scheduler that started this process, as `millrace place` "
                  "does: srun -n 3 millrace serve --from_scheduler --ps 1");
  flags->place.AddGroups(serve);
  flags->place.AddSources(serve);
  flags->tls.Add(serve, "this task's");
  serve->add_flag(
      "--insecure", flags->insecure,
      "Serves without TLS beyond the loopback interface too: anyone who can reach this machine can then run "
      "graphs on it. Needed for TensorFlow's clients and servers on other machines, since they have no TLS");
  serve->add_flag("--client_clusters", flags->client_clusters,
                  "Lets clients bring a cluster of their own (ConfigProto.cluster_def), whose addresses this server "
                  "connects to. Default: only on the loopback interface without TLS");
  serve->add_option("--transport", flags->transport,
                    "The transport of step messages between Millrace tasks: shm (shared memory, between processes of "
                    "one host), tcp, grpc, or auto (the fastest that both ends support). Default: the environment "
                    "variable MILLRACE_TRANSPORT, or auto");
  serve
      ->add_option("--peer_timeout", flags->peer_timeout,
                   "Seconds that a task may be silent before steps that wait for it fail")
      ->capture_default_str();
  serve
      ->add_option("--missing_task_timeout", flags->missing_task_timeout,
                   "Seconds that a new session waits for missing tasks")
      ->capture_default_str();
  serve
      ->add_option("--session_grace", flags->session_grace,
                   "Seconds after which a session is closed once its client has disconnected; -1: never")
      ->capture_default_str();
  serve->footer(
      "Example, one ps and one worker on this machine:\n"
      "  millrace serve --cluster_spec='ps|localhost:2222,worker|localhost:2223' --job_name=ps --task_index=0 &\n"
      "  millrace serve --cluster_spec='ps|localhost:2222,worker|localhost:2223' --job_name=worker --task_index=0 &\n"
      "A client's target is then grpc://localhost:2223.\n"
      "Exit code: 0 after SIGTERM or SIGINT, 1 if it cannot serve (for example because the port is taken), 2 for an "
      "error in the flags.");
  *command = serve;
  return [flags, serve] {
    if (!flags->from_scheduler) return Serve(*flags);
    flags->place.insecure = flags->insecure;
    flags->place.file_roots = flags->file_roots;
    return ServeFromScheduler(*serve, flags->place);
  };
}

}  // namespace millrace
