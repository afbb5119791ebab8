#include "millrace/cluster/server_session.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "millrace/base/event_wait.h"
#include "millrace/cluster/session_config.h"
#include "millrace/graph/graph_def.h"

namespace millrace {
namespace {

// Waits for a call that answers by callback.
template <typename T>
class Answer {
 public:
  auto Callback() {
    return [this](StatusOr<T> value) {
      value_ = std::move(value);
      wait_.Notify();
    };
  }
  StatusOr<T> Wait() {
    wait_.Wait();
    return std::move(value_);
  }

 private:
  EventWait wait_;
  StatusOr<T> value_ = Internal("no answer");
};

std::string TensorName(const std::string& name) { return absl::StrContains(name, ':') ? name : absl::StrCat(name, ":0"); }

std::vector<std::string> TensorNames(absl::Span<const std::string> names) {
  std::vector<std::string> result;
  for (const std::string& name : names) result.push_back(TensorName(name));
  return result;
}

class ServerSession : public Session {
 public:
  ServerSession(std::weak_ptr<Master> master, SessionOptions options) : master_(std::move(master)), options_(std::move(options)) {}
  ~ServerSession() override { Close().IgnoreError(); }

  Status Extend(pb::GraphDef def) override {
    MutexLock lock(&mu_);
    return Add(std::move(def));
  }

  Status Extend(const Graph& graph) override {
    MutexLock lock(&mu_);
    pb::GraphDef fresh;
    *fresh.mutable_versions() = graph.versions();
    *fresh.mutable_library() = graph.library();
    for (const Node* node : graph.nodes()) {
      if (!nodes_.contains(node->name())) *fresh.add_node() = ExportNodeDef(*node);
    }
    return Add(std::move(fresh));
  }

  Status Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
             absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata* metadata) override {
    CallableSpec spec;
    std::vector<Tensor> values;
    for (const auto& [name, value] : feeds) {
      spec.feeds.push_back(TensorName(name));
      values.push_back(value);
    }
    spec.fetches = TensorNames(fetches);
    spec.targets.assign(targets.begin(), targets.end());
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, Find());
    Answer<std::shared_ptr<const MasterProgram>> program;
    session->Program(spec, {}, program.Callback());
    MR_ASSIGN_OR_RETURN(std::shared_ptr<const MasterProgram> compiled, program.Wait());
    return RunProgram(*session, std::move(compiled), std::move(values), options, results, metadata);
  }

  StatusOr<std::unique_ptr<Callable>> MakeCallable(const CallableSpec& spec) override;

  StatusOr<std::string> PartialRunSetup(absl::Span<const std::string> feeds, absl::Span<const std::string> fetches,
                                        absl::Span<const std::string> targets) override {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, Find());
    Answer<std::string> handle;
    session->PartialRunSetup({.feeds = TensorNames(feeds), .fetches = TensorNames(fetches), .targets = {targets.begin(), targets.end()}}, {},
                             handle.Callback());
    return handle.Wait();
  }

  Status PartialRun(const std::string& handle, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                    std::vector<Tensor>* results) override {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, Find());
    RunStepCall call;
    call.partial_run_handle = handle;
    for (const auto& [name, value] : feeds) call.feeds.emplace_back(TensorName(name), value);
    call.fetches = TensorNames(fetches);
    Answer<RunStepAnswer> answer;
    session->RunStep(std::move(call), {}, answer.Callback());
    MR_ASSIGN_OR_RETURN(RunStepAnswer result, answer.Wait());
    results->clear();
    for (auto& [name, value] : result.tensors) results->push_back(std::move(value));
    return absl::OkStatus();
  }

  std::vector<Device*> ListDevices() const override { return {}; }

  StatusOr<std::vector<DeviceInfo>> ListDeviceInfo() override {
    const std::shared_ptr<Master> master = master_.lock();
    if (master == nullptr) return Gone();
    std::string handle;
    {
      MutexLock lock(&mu_);
      handle = handle_;
    }
    Answer<pb::ListDevicesResponse> answer;
    master->ListDevices(handle, {}, answer.Callback());
    MR_ASSIGN_OR_RETURN(const pb::ListDevicesResponse response, answer.Wait());
    std::vector<DeviceInfo> devices;
    for (const auto* list : {&response.local_device(), &response.remote_device()}) {
      for (const pb::DeviceAttributes& d : *list) {
        devices.push_back({.name = d.name(), .type = d.device_type(), .memory_limit = d.memory_limit(), .incarnation = d.incarnation()});
      }
    }
    return devices;
  }

  Status Close() override {
    std::string handle;
    {
      MutexLock lock(&mu_);
      if (std::exchange(closed_, true)) return absl::OkStatus();
      handle = handle_;
    }
    const std::shared_ptr<Master> master = master_.lock();
    if (master == nullptr || handle.empty()) return absl::OkStatus();
    Notification done;
    Status result;
    master->CloseSession(handle, [&](Status status) {
      result = std::move(status);
      done.Notify();
    });
    done.Wait();
    return absl::IsAborted(result) ? absl::OkStatus() : result;
  }

  // With `may_repeat` it may be run several times.
  Status RunProgram(MasterSession& session, std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds,
                    const RunOptions& options, std::vector<Tensor>* results, RunMetadata* metadata, bool may_repeat = false) {
    const absl::Duration timeout = options.timeout == absl::InfiniteDuration() ? options_.operation_timeout : options.timeout;
    Answer<MasterSession::StepResult> answer;
    session.Run(std::move(program), std::move(feeds), RunOptionsProto(options, timeout), {.cancellation = options.cancellation},
                answer.Callback(), may_repeat);
    MR_ASSIGN_OR_RETURN(MasterSession::StepResult result, answer.Wait());
    *results = std::move(result.fetches);
    if (metadata != nullptr) *metadata = std::move(result.metadata);
    return absl::OkStatus();
  }

  StatusOr<std::shared_ptr<MasterSession>> Find() {
    const std::shared_ptr<Master> master = master_.lock();
    if (master == nullptr) return Gone();
    MutexLock lock(&mu_);
    if (closed_) return Cancelled("the session is closed");
    if (handle_.empty()) MR_RETURN_IF_ERROR(Add({}));
    return master->Find(handle_);
  }

 private:
  Status Gone() const { return Unavailable("the server ", options_.target, " in this process has been stopped"); }

  // The first nodes make the session.
  Status Add(pb::GraphDef def) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const std::shared_ptr<Master> master = master_.lock();
    if (master == nullptr) return Gone();
    std::vector<std::string> names;
    for (const pb::NodeDef& node : def.node()) names.push_back(node.name());
    if (handle_.empty()) {
      pb::CreateSessionRequest request;
      *request.mutable_graph_def() = std::move(def);
      *request.mutable_config() = ConfigOf(options_);
      Answer<pb::CreateSessionResponse> answer;
      master->CreateSession(std::move(request), {}, answer.Callback());
      MR_ASSIGN_OR_RETURN(const pb::CreateSessionResponse response, answer.Wait());
      handle_ = response.session_handle();
    } else if (!names.empty() || def.has_library()) {
      MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, master->Find(handle_));
      MR_ASSIGN_OR_RETURN(version_, session->Extend(std::move(def), version_));
    }
    nodes_.insert(names.begin(), names.end());
    return absl::OkStatus();
  }

  const std::weak_ptr<Master> master_;
  const SessionOptions options_;
  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::string handle_ ABSL_GUARDED_BY(mu_);
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<std::string> nodes_ ABSL_GUARDED_BY(mu_);
};

class ServerCallable : public Callable {
 public:
  ServerCallable(ServerSession* session, std::shared_ptr<const MasterProgram> program)
      : session_(session), program_(std::move(program)) {}
  Status Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results, const RunOptions& options,
             RunMetadata* metadata) override {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, session_->Find());
    return session_->RunProgram(*session, program_, {feeds.begin(), feeds.end()}, options, results, metadata);
  }
  Status Repeat(const RunOptions& options) override {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, session_->Find());
    std::vector<Tensor> dropped;
    Status status;
    while (status.ok()) status = session_->RunProgram(*session, program_, {}, options, &dropped, nullptr, /*may_repeat=*/true);
    return status;
  }

 private:
  ServerSession* const session_;
  const std::shared_ptr<const MasterProgram> program_;
};

StatusOr<std::unique_ptr<Callable>> ServerSession::MakeCallable(const CallableSpec& spec) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, Find());
  Answer<std::shared_ptr<const MasterProgram>> program;
  session->Program({.feeds = TensorNames(spec.feeds), .fetches = TensorNames(spec.fetches), .targets = spec.targets}, {},
                   program.Callback());
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const MasterProgram> compiled, program.Wait());
  return std::make_unique<ServerCallable>(this, std::move(compiled));
}

}  // namespace

LocalServer LocalServerOf(const std::shared_ptr<Master>& master) {
  LocalServer server;
  server.create_session = [weak = std::weak_ptr<Master>(master)](const SessionOptions& options) -> StatusOr<std::unique_ptr<Session>> {
    return std::make_unique<ServerSession>(weak, options);
  };
  server.reset = [weak = std::weak_ptr<Master>(master)](const std::vector<std::string>& containers,
                                                        const std::vector<std::string>& device_filters) -> Status {
    const std::shared_ptr<Master> master = weak.lock();
    if (master == nullptr) return Unavailable("the server has been stopped");
    pb::ResetRequest request;
    for (const std::string& container : containers) request.add_container(container);
    for (const std::string& filter : device_filters) request.add_device_filters(filter);
    Notification done;
    Status result;
    master->Reset(std::move(request), {}, [&](Status status) {
      result = std::move(status);
      done.Notify();
    });
    done.Wait();
    return result;
  };
  return server;
}

}  // namespace millrace
