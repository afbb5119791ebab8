#include "millrace/net/lane/host_lookups.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/fd.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"
#include "millrace/net/address.h"
#include "millrace/net/lane/sockets.h"

namespace millrace::net {
namespace {

using Addresses = StatusOr<std::vector<std::string>>;

Addresses AskTheSystem(const std::string& host) {
  if (IsLocalhost(host)) return std::vector<std::string>{"127.0.0.1", "::1"};  // also without /etc/hosts
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return Unavailable("the host ", host, " is not known: ", gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text);
  }
  return addresses;
}

}  // namespace

struct HostLookups::Lookup {
  Fd over{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  // readable from then on
  Mutex mu;
  Addresses result ABSL_GUARDED_BY(mu) = absl::UnknownError("not looked up yet");
};

struct HostLookups::State {
  explicit State(HostResolver resolver) : resolver(std::move(resolver)) {}

  void End(const std::string& host, Lookup* lookup, Addresses result) {
    if (result.ok() && result->empty()) result = Unavailable("the host ", host, " has no address");
    {
      MutexLock lock(&mu);
      running.erase(host);
    }
    {
      MutexLock lock(&lookup->mu);
      lookup->result = std::move(result);
    }
    const uint64_t one = 1;
    if (write(lookup->over.get(), &one, sizeof(one)) < 0) MR_LOG(Error, "eventfd: ", std::strerror(errno));
  }

  const HostResolver resolver;
  Mutex mu;
  absl::flat_hash_map<std::string, std::shared_ptr<Lookup>> running ABSL_GUARDED_BY(mu);  // by host
};

HostLookups::HostLookups(HostResolver resolver)
    : state_(std::make_shared<State>(resolver != nullptr ? std::move(resolver) : AskTheSystem)) {}

HostLookups::~HostLookups() = default;

StatusOr<std::vector<std::string>> HostLookups::Find(const std::string& host, absl::Time deadline, int stop) {
  if (IsNumericHost(host)) return std::vector<std::string>{host};
  auto lookup = std::make_shared<Lookup>();
  bool is_new = false;
  if (!lookup->over.ok()) return ResourceExhausted("there are no file descriptors left to look up the host ", host);
  {
    MutexLock lock(&state_->mu);
    const auto [it, inserted] = state_->running.try_emplace(host, lookup);
    is_new = inserted;
    lookup = it->second;
  }
  if (is_new && !StartDetachedThread("host-lookup", [state = state_, lookup, host] {
        state->End(host, lookup.get(), state->resolver(host));
      })) {
    state_->End(host, lookup.get(), ResourceExhausted("there are no threads left to look up the host ", host));
  }
  if (Status waited = WaitFor(lookup->over.get(), POLLIN, deadline, stop); !waited.ok()) {
    return WithPrefix(absl::StrCat("while the host ", host, " is looked up: "), waited);
  }
  MutexLock lock(&lookup->mu);
  return lookup->result;
}

}  // namespace millrace::net
