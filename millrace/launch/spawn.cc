#include "millrace/launch/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace millrace::launch {
namespace {

rlimit first_limit = {};  // the limit of descriptors before it was raised

// The default of execvp if PATH is not set.
constexpr char kDefaultPath[] = "/bin:/usr/bin";

// The path of `program`, looked up in PATH; `program` itself if it is not found.
std::string InPath(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* path = std::getenv("PATH");
  absl::string_view rest = path != nullptr ? path : kDefaultPath;
  while (true) {
    const size_t end = rest.find(':');
    const absl::string_view directory = rest.substr(0, end);
    const std::string file = absl::StrCat(directory.empty() ? "." : directory, "/", program);
    if (access(file.c_str(), X_OK) == 0) return file;
    if (end == absl::string_view::npos) return program;
    rest.remove_prefix(end + 1);
  }
}

std::vector<std::string> MergedEnvironment(const std::vector<std::string>& over) {
  std::vector<std::string> merged = over;
  const auto name = [](absl::string_view entry) { return entry.substr(0, entry.find('=')); };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::none_of(over.begin(), over.end(), [&](const std::string& o) { return name(o) == name(*entry); }))
      merged.push_back(*entry);
  }
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Runs in the child up to exec, with async-signal-safe calls only. Returns on failure, with errno set.
void Become(const char* file, char* const* arguments, char* const* environment, std::vector<int>& descriptors,
            int* report, int parent_death_signal, pid_t parent) {
  setsid();
  if (parent_death_signal != 0) {
    prctl(PR_SET_PDEATHSIG, parent_death_signal);
    // The parent may have ended before that.
    if (getppid() != parent) _exit(127);
  }
  // Moves the descriptors out of the way first, so that none is overwritten before it is copied.
  const int count = static_cast<int>(descriptors.size());
  for (int& fd : descriptors) {
    fd = fd < 0 ? open("/dev/null", O_RDWR) : fcntl(fd, F_DUPFD, count + 1);
    if (fd < 0) return;
    if (fd <= count) {
      const int moved = fcntl(fd, F_DUPFD, count + 1);
      if (moved < 0) return;
      close(fd);
      fd = moved;
    }
  }
  const int moved_report = fcntl(*report, F_DUPFD, count + 1);
  if (moved_report < 0) return;
  for (int i = 0; i < count; ++i) {
    if (dup2(descriptors[i], i) < 0) return;
  }
  if (dup2(moved_report, count) < 0) return;
  *report = count;
  fcntl(count, F_SETFD, FD_CLOEXEC);
  syscall(SYS_close_range, count + 1, ~0U, 0);
  if (first_limit.rlim_max != 0) setrlimit(RLIMIT_NOFILE, &first_limit);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(file, arguments, environment);
}

}  // namespace

StatusOr<Pipe> Pipe::Make() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ResourceExhausted("cannot create a pipe: ", strerror(errno));
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  first_limit = limit;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

pid_t Spawn(const SpawnOptions& options, SpawnError* error) {
  StatusOr<Pipe> report = Pipe::Make();
  if (!report.ok()) {
    *error = {EMFILE, std::string(report.status().message())};
    return -1;
  }
  std::vector<std::string> words = options.arguments, merged = MergedEnvironment(options.environment);
  const std::string file = options.path.empty() ? InPath(words[0]) : options.path;
  std::vector<char*> arguments = Pointers(words), environment = Pointers(merged);
  std::vector<int> descriptors = options.descriptors;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    *error = {errno, absl::StrCat("cannot create a process: ", strerror(errno))};
    return -1;
  }
  if (pid == 0) {
    int fd = report->write.get();
    Become(file.c_str(), arguments.data(), environment.data(), descriptors, &fd, options.parent_death_signal, parent);
    const int number = errno;
    if (write(fd, &number, sizeof(number)) < 0) _exit(126);
    _exit(127);
  }
  report->write.Reset();
  int number = 0;
  ssize_t size;
  do {
    size = read(report->read.get(), &number, sizeof(number));
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return pid;  // exec closed it
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  *error = {number, absl::StrCat(options.arguments[0], ": ", strerror(number))};
  return -1;
}

}  // namespace millrace::launch
