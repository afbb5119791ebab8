#include "millrace/net/lane/endpoint.h"

#include <unistd.h>

#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/log.h"
#include "millrace/net/lane/server_link.h"
#include "millrace/net/lane/sockets.h"

namespace millrace::net {
namespace {

constexpr absl::Duration kSecretLives = absl::Seconds(30);
constexpr size_t kMostSecrets = 4096;
constexpr size_t kMostLinks = 4096;
// How long callers have to read the last answers and close the connection themselves.
constexpr absl::Duration kGrace = absl::Milliseconds(300);

std::string RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  FillWithRandom(bytes.data(), size);
  return bytes;
}

}  // namespace

RefPtr<LaneEndpoint> LaneEndpoint::Open(LaneCore* core, const HostPort& address, Service* service) {
  auto endpoint = AdoptRef(new LaneEndpoint(core, address, service));
  MutexLock lock(&endpoint->mu_);
  LaneOffer& offer = endpoint->offered_;
  offer.set_version(kLaneVersion);
  offer.set_host(HostIdentity());
  for (const std::string& method : service->methods()) offer.add_methods(method);
  endpoint->OpenMedia(/*within_host=*/true);
  if (core->options.kind == LaneKind::kTcp) endpoint->OpenMedia(/*within_host=*/false);
  return endpoint;
}

void LaneEndpoint::OpenMedia(bool within_host) {
  on_network_ |= !within_host;
  for (const LaneMedium* medium : LaneMedia()) {
    if (medium->within_host() != within_host || !medium->Allowed(core_->options).ok()) continue;
    StatusOr<std::vector<Fd>> sockets = medium->Listen(address_, &offered_);
    if (!sockets.ok()) {
      MR_LOG(Warning, "there will be no step lanes of kind ", medium->name(), ": ", sockets.status().message());
      continue;
    }
    for (Fd& socket : *sockets) Listen(std::move(socket), medium);
    if (within_host) continue;
    if (IsLoopback(address_.host)) {
      MR_LOG(Debug, "listens for step lanes at port ", offered_.tcp_port(), ", on the loopback interface");
    } else {
      MR_LOG(Info, "listens for step lanes at port ", offered_.tcp_port(), ", on all interfaces");
    }
  }
}

LaneEndpoint::~LaneEndpoint() = default;

void LaneEndpoint::Listen(Fd socket, const LaneMedium* medium) {
  auto handler = MakeRef<LaneAcceptor>(ShareRef(this), core_->loop.get(), std::move(socket), medium);
  if (Status started = handler->Start(); !started.ok()) MR_LOG(Warning, "no step lanes: ", started.message());
  accepting_.push_back(std::move(handler));
}

LaneOffer LaneEndpoint::MakeOffer(LanePeer peer, const LaneOfferRequest& request) {
  std::string secret = RandomBytes(sizeof(LaneSecret));
  const absl::Time now = core_->options.clock->Now();
  const bool within_host = request.host() == HostIdentity() && request.user() == geteuid();
  MutexLock lock(&mu_);
  if (!within_host && !on_network_ && !stopping_) OpenMedia(/*within_host=*/false);
  LaneOffer offer = offered_;
  offer.set_secret(secret);
  if (secrets_.size() >= kMostSecrets) {
    absl::erase_if(secrets_, [now](const auto& entry) { return entry.second.expires <= now; });
    if (secrets_.size() >= kMostSecrets) secrets_.erase(secrets_.begin());
  }
  secrets_.emplace(std::move(secret), Secret{std::move(peer), now + kSecretLives});
  return offer;
}

StatusOr<LanePeer> LaneEndpoint::UseSecret(const LaneSecret& secret) {
  MutexLock lock(&mu_);
  const auto it = secrets_.find(std::string(secret.data(), secret.size()));
  if (it == secrets_.end())
    return absl::PermissionDeniedError("the secret of the step lane is wrong, or was used before");
  Secret found = std::move(it->second);
  secrets_.erase(it);
  if (found.expires <= core_->options.clock->Now())
    return absl::PermissionDeniedError("the secret of the step lane is too old");
  return std::move(found.peer);
}

void LaneEndpoint::Refused(const std::string& peer, const Status& why) {
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
  }
  const uint64_t count = core_->refused.fetch_add(1) + 1;
  if (count > 10 && (count & (count - 1)) != 0) return;  // repeated attempts must not fill the log
  MR_LOG(Warning, "refused a connection to the step lane from ", peer, ": ", why.message(), " (", count, " so far)");
}

bool LaneEndpoint::AddLink(ServerLink* link) {
  MutexLock lock(&mu_);
  if (stopping_ || links_.size() >= kMostLinks) return false;
  links_.insert(link);
  return true;
}

void LaneEndpoint::RemoveLink(ServerLink* link) {
  MutexLock lock(&mu_);
  links_.erase(link);
  changed_.SignalAll();
}

std::vector<RefPtr<ServerLink>> LaneEndpoint::links() const {
  std::vector<RefPtr<ServerLink>> links;
  MutexLock lock(&mu_);
  // The links in this list have not ended, so they are still referenced.
  for (ServerLink* link : links_) links.push_back(ShareRef(link));
  return links;
}

void LaneEndpoint::BeginStop() {
  std::vector<RefPtr<LaneAcceptor>> accepting;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    accepting.swap(accepting_);
  }
  in_flight_.Stop();
  for (const auto& handler : accepting) handler->Stop();
  for (const auto& link : links()) link->CancelCalls(Cancelled("the server is stopping"));
}

void LaneEndpoint::FinishStop() {
  in_flight_.Wait();
  for (const auto& link : links()) link->SayBye();
  {
    const absl::Time patience = Clock::Real()->Now() + kGrace;
    MutexLock lock(&mu_);
    while (!links_.empty() && Clock::Real()->Now() < patience) changed_.WaitFor(&mu_, patience - Clock::Real()->Now());
  }
  for (const auto& link : links()) link->End(Unavailable("the server is stopping"));
  MutexLock lock(&mu_);
  while (!links_.empty()) changed_.Wait(&mu_);
}

}  // namespace millrace::net
