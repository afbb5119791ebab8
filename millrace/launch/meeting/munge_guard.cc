// munge through its library, opened at run time: every node of a Slurm cluster has it.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

#include "millrace/launch/meeting/meeting_guard.h"

namespace millrace::launch {
namespace {

constexpr char kMungeLibrary[] = "libmunge.so.2";
// Of munge's interface: options of a context, and success.
constexpr int kMungeSocketOption = 8, kMungeUserOption = 9, kMungeOk = 0;

struct MungeLibrary {
  void* (*ctx_create)();
  void (*ctx_destroy)(void*);
  int (*ctx_set)(void*, int, ...);
  int (*ctx_get)(void*, int, ...);
  int (*encode)(char**, void*, const void*, int);
  int (*decode)(const char*, void*, void**, int*, uid_t*, gid_t*);
  const char* (*strerror)(int);

  // Null if it is not installed. Never closed.
  static const MungeLibrary* Get() {
    static const MungeLibrary* const library = Load();
    return library;
  }

 private:
  static const MungeLibrary* Load() {
    void* const opened = dlopen(kMungeLibrary, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) return nullptr;
    static MungeLibrary library;
    bool whole = true;
    const auto find = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(opened, name));
      whole = whole && *function != nullptr;
    };
    find(&library.ctx_create, "munge_ctx_create");
    find(&library.ctx_destroy, "munge_ctx_destroy");
    find(&library.ctx_set, "munge_ctx_set");
    find(&library.ctx_get, "munge_ctx_get");
    find(&library.encode, "munge_encode");
    find(&library.decode, "munge_decode");
    find(&library.strerror, "munge_strerror");
    return whole ? &library : nullptr;
  }
};

class MungeGuard : public MeetingGuard {
 public:
  MungeGuard(const MungeLibrary* munge, const std::string& socket) : munge_(munge), context_(munge->ctx_create()) {
    if (context_ == nullptr) return;
    if (!socket.empty()) munge_->ctx_set(context_, kMungeSocketOption, socket.c_str());
    // Only this user can decode it.
    munge_->ctx_set(context_, kMungeUserOption, getuid());
  }
  ~MungeGuard() override {
    if (context_ != nullptr) munge_->ctx_destroy(context_);
  }

  // Whether its daemon has a socket here. A question to it would cost each process of a job a round trip.
  Status Check() const {
    const char* path = nullptr;
    if (context_ == nullptr || munge_->ctx_get(context_, kMungeSocketOption, &path) != kMungeOk || path == nullptr)
      return Unavailable("munge does not say where its socket is");
    struct stat found;
    if (stat(path, &found) == 0 && S_ISSOCK(found.st_mode)) return absl::OkStatus();
    return Unavailable("munge's daemon does not run here: no socket at ", path);
  }

  std::string name() const override { return "munge"; }

  StatusOr<std::string> Seal(absl::string_view message) override {
    char* sealed = nullptr;
    const int code = munge_->encode(&sealed, context_, message.data(), static_cast<int>(message.size()));
    const std::string text = code == kMungeOk && sealed != nullptr ? sealed : "";
    std::free(sealed);
    if (code != kMungeOk) return Unavailable("munge: ", munge_->strerror(code));
    return text;
  }

  StatusOr<std::string> Open(absl::string_view sealed) override {
    void* bytes = nullptr;
    int size = 0;
    uid_t user = 0;
    gid_t group = 0;
    const std::string text(sealed);
    const int code = munge_->decode(text.c_str(), context_, &bytes, &size, &user, &group);
    const std::string message = bytes != nullptr && size > 0 ? std::string(static_cast<char*>(bytes), size) : "";
    std::free(bytes);
    // A repeated credential is one of its errors.
    if (code != kMungeOk) return absl::PermissionDeniedError(absl::StrCat("munge: ", munge_->strerror(code)));
    if (user != getuid()) return absl::PermissionDeniedError(absl::StrCat("it comes from user ", user));
    return message;
  }

 private:
  const MungeLibrary* const munge_;
  void* const context_;
};

}  // namespace

StatusOr<std::unique_ptr<MeetingGuard>> MakeMungeGuard(const std::string& socket) {
  const MungeLibrary* const library = MungeLibrary::Get();
  if (library == nullptr) return Unavailable(kMungeLibrary, " is not installed");
  auto guard = std::make_unique<MungeGuard>(library, socket);
  MR_RETURN_IF_ERROR(guard->Check());
  return guard;
}

}  // namespace millrace::launch
