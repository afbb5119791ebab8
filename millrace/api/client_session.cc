#include "millrace/api/client_session.h"

#include <atomic>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

Status NamesOf(const std::vector<Output>& outputs, const char* what, std::vector<std::string>* names) {
  for (const Output& output : outputs) {
    if (output.empty()) return InvalidArgument(what, " ", names->size(), " is an empty Output");
    names->push_back(output.name());
  }
  return absl::OkStatus();
}

Status NamesOf(const std::vector<Operation>& targets, std::vector<std::string>* names) {
  for (const Operation& target : targets) {
    if (target.empty()) return InvalidArgument("target ", names->size(), " is an empty Operation");
    names->push_back(target.name());
  }
  return absl::OkStatus();
}

}  // namespace

// Concurrent runs may find new nodes at the same time; one of them extends the session, and the others wait for it.
struct ClientSession::Known {
  std::atomic<int> nodes{0};
  Mutex mu;
};

ClientSession::ClientSession(Scope scope, std::unique_ptr<Session> session)
    : scope_(std::move(scope)), session_(std::move(session)), known_(std::make_shared<Known>()) {}

StatusOr<ClientSession> ClientSession::Create(const Scope& scope, const SessionOptions& options) {
  MR_RETURN_IF_ERROR(scope.status());
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(options));
  return ClientSession(scope, std::move(session));
}

Status ClientSession::Extend() {
  MR_RETURN_IF_ERROR(scope_.status());
  const int nodes = scope_.graph()->max_id();
  if (nodes == known_->nodes.load(std::memory_order_acquire)) return absl::OkStatus();
  MutexLock lock(&known_->mu);
  if (nodes == known_->nodes.load(std::memory_order_relaxed)) return absl::OkStatus();
  MR_RETURN_IF_ERROR(session_->Extend(*scope_.graph()));
  known_->nodes.store(nodes, std::memory_order_release);
  return absl::OkStatus();
}

StatusOr<Tensors> ClientSession::Run(const Feeds& feeds, const std::vector<Output>& fetches,
                                     const std::vector<Operation>& targets) {
  Tensors results;
  MR_RETURN_IF_ERROR(Run(RunOptions(), feeds, fetches, targets, &results, nullptr));
  return results;
}

Status ClientSession::Run(const RunOptions& options, const Feeds& feeds, const std::vector<Output>& fetches,
                          const std::vector<Operation>& targets, Tensors* results, RunMetadata* metadata) {
  MR_RETURN_IF_ERROR(Extend());
  std::vector<Feed> feed_names;
  for (const auto& [output, value] : feeds) {
    if (output.empty()) return InvalidArgument("feed ", feed_names.size(), " is for an empty Output");
    feed_names.emplace_back(output.name(), value);
  }
  std::vector<std::string> fetch_names, target_names;
  MR_RETURN_IF_ERROR(NamesOf(fetches, "fetch", &fetch_names));
  MR_RETURN_IF_ERROR(NamesOf(targets, &target_names));
  return session_->Run(options, feed_names, fetch_names, target_names, results, metadata);
}

StatusOr<Step> ClientSession::MakeStep(const std::vector<Output>& feeds, const std::vector<Output>& fetches,
                                       const std::vector<Operation>& targets) {
  MR_RETURN_IF_ERROR(Extend());
  CallableSpec spec;
  MR_RETURN_IF_ERROR(NamesOf(feeds, "feed", &spec.feeds));
  MR_RETURN_IF_ERROR(NamesOf(fetches, "fetch", &spec.fetches));
  MR_RETURN_IF_ERROR(NamesOf(targets, &spec.targets));
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Callable> callable, session_->MakeCallable(spec));
  return Step(std::move(callable));
}

}  // namespace millrace
