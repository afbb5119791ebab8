// Faults of the operating system for one process of a test, loaded with LD_PRELOAD: a disk that stalls or is full, no
// descriptors, connections that break. A test switches them through the file that MILLRACE_TEST_FAULTS names.
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

void BreakConnections() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return;
  while (const dirent* const entry = readdir(directory)) {
    const int fd = atoi(entry->d_name);
    sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0) shutdown(fd, SHUT_RDWR);
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
      if (switches->cut.compare_exchange_strong(me, 0)) BreakConnections();
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
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  return next(fd, data, size);
}
ssize_t writev(int fd, const iovec* parts, int count) {
  if (Is(&Switches::full) && IsFile(fd)) return Full();
  static auto* const next = Next<ssize_t(int, const iovec*, int)>("writev");
  return next(fd, parts, count);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  if (Is(&Switches::full) && IsFile(fd)) return Full();
  static auto* const next = Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return next(fd, data, size, offset);
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
