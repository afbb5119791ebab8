// Faults of the operating system for one process of a test, loaded with LD_PRELOAD: a disk that stalls or is full, no
// descriptors, connections that break, go silent, lose answers or deliver messages twice, a time of day that jumps. A
// test switches them through the file that MILLRACE_TEST_FAULTS names.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace {

// The contents of the file, which kill_test.py writes.
struct Switches {
  std::atomic<int32_t> stalled;         // fsync and fdatasync do not return
  std::atomic<int32_t> full;            // regular files cannot be written
  std::atomic<int32_t> no_descriptors;  // nothing can be opened
  std::atomic<int32_t> cut;             // the process with this number finds its connections broken, once
  std::atomic<int32_t> silence;         // what the process with this number sends over its connections is lost, once
  std::atomic<int32_t> clock;           // seconds by which the time of day is wrong
  std::atomic<int32_t> twice;           // the process with this number sends its next messages twice, once
  std::atomic<int32_t> unanswered;      // the process with this number receives, its answers are lost and then its
                                        // connections break, once
};

Switches* switches = nullptr;

bool Is(std::atomic<int32_t> Switches::*fault) { return switches != nullptr && (switches->*fault).load() != 0; }

bool IsFile(int fd) {
  struct stat stat;
  return fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode);
}

void Pause() {
  const timespec time = {0, 20'000'000};
  nanosleep(&time, nullptr);
}

// The connections that are silent, until they are closed.
constexpr int kDescriptors = 1 << 16;
std::atomic<bool> silent[kDescriptors];

bool IsSilent(int fd) { return fd >= 0 && fd < kDescriptors && silent[fd].load(std::memory_order_relaxed); }

bool IsConnection(int fd) {
  sockaddr_storage peer;
  socklen_t size = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

// How many messages are yet to be sent twice.
constexpr int kTwice = 20;
std::atomic<int> to_double{0};

// Whether what was sent whole over this connection is sent once more.
bool Doubles(int fd, ssize_t sent, size_t size) {
  if (to_double.load(std::memory_order_relaxed) <= 0 || sent != static_cast<ssize_t>(size) || !IsConnection(fd))
    return false;
  return to_double.fetch_sub(1) > 0;
}

template <typename Do>
void ForConnections(Do act) {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return;
  while (const dirent* const entry = readdir(directory)) {
    const int fd = atoi(entry->d_name);
    sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0) act(fd, peer.ss_family);
  }
  closedir(directory);
}

__attribute__((constructor)) void Attach() {
  const char* const path = getenv("MILLRACE_TEST_FAULTS");
  if (path == nullptr) return;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* const memory = mmap(nullptr, sizeof(Switches), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return;
  switches = static_cast<Switches*>(memory);
  // The program's signals are not this thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([] {
    for (;;) {
      int32_t me = getpid();
      if (switches->cut.compare_exchange_strong(me, 0)) {
        ForConnections([](int fd, int) { shutdown(fd, SHUT_RDWR); });
      }
      me = getpid();
      if (switches->silence.compare_exchange_strong(me, 0)) {
        // A socket between two processes of a machine has nothing in between that could lose it.
        ForConnections([](int fd, int family) {
          if (family != AF_UNIX && fd < kDescriptors) silent[fd].store(true);
        });
      }
      me = getpid();
      if (switches->twice.compare_exchange_strong(me, 0)) to_double.store(kTwice);
      me = getpid();
      if (switches->unanswered.compare_exchange_strong(me, 0)) {
        ForConnections([](int fd, int) {
          if (fd < kDescriptors) silent[fd].store(true);
        });
        for (int i = 0; i < 5; ++i) Pause();  // what is in flight arrives and is applied
        ForConnections([](int fd, int) {
          if (IsSilent(fd)) shutdown(fd, SHUT_RDWR);
        });
      }
      Pause();
    }
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int NoDescriptors() {
  errno = EMFILE;
  return -1;
}

size_t SizeOf(const iovec* parts, size_t count) {
  size_t size = 0;
  for (size_t i = 0; i < count; ++i) size += parts[i].iov_len;
  return size;
}

ssize_t Full() {
  errno = ENOSPC;
  return -1;
}

}  // namespace

extern "C" {

int fsync(int fd) {
  while (Is(&Switches::stalled)) Pause();
  static auto* const next = Next<int(int)>("fsync");
  return next(fd);
}
int fdatasync(int fd) {
  while (Is(&Switches::stalled)) Pause();
  static auto* const next = Next<int(int)>("fdatasync");
  return next(fd);
}
ssize_t write(int fd, const void* data, size_t size) {
  if (Is(&Switches::full) && IsFile(fd)) return Full();
  if (IsSilent(fd)) return static_cast<ssize_t>(size);
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  const ssize_t sent = next(fd, data, size);
  if (Doubles(fd, sent, size)) next(fd, data, size);
  return sent;
}
ssize_t writev(int fd, const iovec* parts, int count) {
  if (Is(&Switches::full) && IsFile(fd)) return Full();
  if (IsSilent(fd)) return static_cast<ssize_t>(SizeOf(parts, count));
  static auto* const next = Next<ssize_t(int, const iovec*, int)>("writev");
  const ssize_t sent = next(fd, parts, count);
  if (Doubles(fd, sent, SizeOf(parts, count))) next(fd, parts, count);
  return sent;
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  if (Is(&Switches::full) && IsFile(fd)) return Full();
  static auto* const next = Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return next(fd, data, size, offset);
}
ssize_t send(int fd, const void* data, size_t size, int flags) {
  if (IsSilent(fd)) return static_cast<ssize_t>(size);
  static auto* const next = Next<ssize_t(int, const void*, size_t, int)>("send");
  const ssize_t sent = next(fd, data, size, flags);
  if (Doubles(fd, sent, size)) next(fd, data, size, flags);
  return sent;
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (IsSilent(fd)) return static_cast<ssize_t>(SizeOf(message->msg_iov, message->msg_iovlen));
  static auto* const next = Next<ssize_t(int, const msghdr*, int)>("sendmsg");
  const ssize_t sent = next(fd, message, flags);
  if (Doubles(fd, sent, SizeOf(message->msg_iov, message->msg_iovlen))) next(fd, message, flags);
  return sent;
}
int close(int fd) {
  if (fd >= 0 && fd < kDescriptors) silent[fd].store(false, std::memory_order_relaxed);
  static auto* const next = Next<int(int)>("close");
  return next(fd);
}
int clock_gettime(clockid_t clock, timespec* time) {
  static auto* const next = Next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME && switches != nullptr) time->tv_sec += switches->clock.load();
  return result;
}
int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  if (Is(&Switches::no_descriptors)) return NoDescriptors();
  static auto* const next = Next<int(int, sockaddr*, socklen_t*, int)>("accept4");
  return next(fd, address, size, flags);
}
int socket(int domain, int type, int protocol) {
  if (Is(&Switches::no_descriptors)) return NoDescriptors();
  static auto* const next = Next<int(int, int, int)>("socket");
  return next(domain, type, protocol);
}

}  // extern "C"
