#include "millrace/cluster/client/server_session.h"

#include <utility>

#include "millrace/base/event_wait.h"
#include "millrace/cluster/client/session_config.h"

namespace millrace {
namespace {

// Blocks until a call answers through its callback.
template <typename T>
class Answer {
 public:
  auto Callback() {
    return [this](StatusOr<T> value) {
      value_ = std::move(value);
      wait_.Notify();
    };
  }
  // Passed with the call, so that this thread may read the answer itself.
  const RefPtr<ThreadHandover>& handover() const { return wait_.handover(); }
  StatusOr<T> Wait() {
    wait_.Wait();
    return std::move(value_);
  }

 private:
  EventWait wait_;
  StatusOr<T> value_ = Internal("no answer");
};

class ServerCallable : public Callable {
 public:
  ServerCallable(ServerSession* session, std::shared_ptr<const MasterProgram> program)
      : session_(session), program_(std::move(program)) {}
  Status Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results, const RunOptions& options,
             RunMetadata* metadata) override {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, session_->Find());
    return session_->RunProgram(*session, program_, {feeds.begin(), feeds.end()}, options, results, metadata,
                                /*may_repeat=*/false);
  }
  Status Repeat(const RunOptions& options, RunIdentity* run) override {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, session_->Find());
    return RepeatWith(options, run, [&](const RunOptions& each) {
      std::vector<Tensor> dropped;
      return session_->RunProgram(*session, program_, {}, each, &dropped, nullptr, /*may_repeat=*/true);
    });
  }

 private:
  ServerSession* const session_;
  const std::shared_ptr<const MasterProgram> program_;
};

}  // namespace

ServerSession::ServerSession(std::weak_ptr<Master> master, const SessionOptions& options)
    : BaseSession(options), master_(std::move(master)) {}

ServerSession::~ServerSession() { Close().IgnoreError(); }

StatusOr<std::shared_ptr<Master>> ServerSession::LockMaster() const {
  std::shared_ptr<Master> master = master_.lock();
  if (master == nullptr) return Unavailable("the server ", options().target, " in this process has been stopped");
  return master;
}

StatusOr<std::string> ServerSession::Handle() {
  MutexLock lock(&mu_);
  if (closed_) return Cancelled("the session is closed");
  return handle_;
}

Status ServerSession::Add(pb::GraphDef fresh) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Master> master, LockMaster());
  MR_ASSIGN_OR_RETURN(const std::string handle, Handle());
  if (!handle.empty()) {
    MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, master->Find(handle));
    MR_ASSIGN_OR_RETURN(version_, session->Extend(std::move(fresh), version_));
    return absl::OkStatus();
  }
  pb::CreateSessionRequest request;
  *request.mutable_graph_def() = std::move(fresh);
  *request.mutable_config() = ConfigOf(options());
  Answer<pb::CreateSessionResponse> answer;
  master->CreateSession(std::move(request), {}, answer.Callback());
  MR_ASSIGN_OR_RETURN(const pb::CreateSessionResponse response, answer.Wait());
  {
    MutexLock lock(&mu_);
    handle_ = response.session_handle();
    if (!closed_) return absl::OkStatus();
  }
  // The session was closed meanwhile, when there was nothing to close at the master yet.
  master->CloseSession(response.session_handle(), [](Status) {});
  return Cancelled("the session is closed");
}

StatusOr<std::shared_ptr<MasterSession>> ServerSession::Find() {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Master> master, LockMaster());
  MR_ASSIGN_OR_RETURN(std::string handle, Handle());
  if (handle.empty()) {
    MR_RETURN_IF_ERROR(InTurn([&]() -> Status {
      MR_ASSIGN_OR_RETURN(handle, Handle());
      return handle.empty() ? Add({}) : absl::OkStatus();
    }));
    MR_ASSIGN_OR_RETURN(handle, Handle());
  }
  return master->Find(handle);
}

Status ServerSession::RunProgram(MasterSession& session, std::shared_ptr<const MasterProgram> program,
                                 std::vector<Tensor> feeds, const RunOptions& options, std::vector<Tensor>* results,
                                 RunMetadata* metadata, bool may_repeat) {
  Answer<MasterSession::StepResult> answer;
  session.Run(std::move(program), std::move(feeds), RunOptionsProto(options, TimeoutOf(options)),
              {.cancellation = options.cancellation, .handover = answer.handover()}, answer.Callback(), may_repeat);
  MR_ASSIGN_OR_RETURN(MasterSession::StepResult result, answer.Wait());
  *results = std::move(result.fetches);
  if (metadata != nullptr) *metadata = std::move(result.metadata);
  return absl::OkStatus();
}

Status ServerSession::RunStep(CallableSpec spec, std::vector<Tensor> feeds, const RunOptions& options,
                              std::vector<Tensor>* results, RunMetadata* metadata) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, Find());
  Answer<std::shared_ptr<const MasterProgram>> program;
  session->Program(spec, {}, program.Callback());
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const MasterProgram> compiled, program.Wait());
  return RunProgram(*session, std::move(compiled), std::move(feeds), options, results, metadata, /*may_repeat=*/false);
}

StatusOr<std::unique_ptr<Callable>> ServerSession::Compile(CallableSpec spec) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, Find());
  Answer<std::shared_ptr<const MasterProgram>> program;
  session->Program(spec, {}, program.Callback());
  MR_ASSIGN_OR_RETURN(std::shared_ptr<const MasterProgram> compiled, program.Wait());
  return std::make_unique<ServerCallable>(this, std::move(compiled));
}

StatusOr<std::string> ServerSession::SetUpPartial(CallableSpec spec) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, Find());
  Answer<std::string> handle;
  session->PartialRunSetup(std::move(spec), {}, handle.Callback());
  return handle.Wait();
}

Status ServerSession::RunPartial(const std::string& handle, std::vector<Feed> feeds, std::vector<std::string> fetches,
                                 std::vector<Tensor>* results) {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<MasterSession> session, Find());
  RunStepCall call;
  call.partial_run_handle = handle;
  call.feeds = std::move(feeds);
  call.fetches = std::move(fetches);
  Answer<RunStepAnswer> answer;
  session->RunStep(std::move(call), {.handover = answer.handover()}, answer.Callback());
  MR_ASSIGN_OR_RETURN(RunStepAnswer result, answer.Wait());
  results->clear();
  for (auto& [name, value] : result.tensors) results->push_back(std::move(value));
  return absl::OkStatus();
}

StatusOr<std::vector<DeviceInfo>> ServerSession::ListDeviceInfo() {
  MR_ASSIGN_OR_RETURN(const std::shared_ptr<Master> master, LockMaster());
  std::string handle;
  {
    MutexLock lock(&mu_);
    handle = handle_;
  }
  Answer<pb::ListDevicesResponse> answer;
  master->ListDevices(handle, {}, answer.Callback());
  MR_ASSIGN_OR_RETURN(const pb::ListDevicesResponse response, answer.Wait());
  return DeviceInfos(response);
}

Status ServerSession::Close() {
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

LocalServer MakeLocalServer(const std::shared_ptr<Master>& master) {
  LocalServer server;
  server.create_session =
      [weak = std::weak_ptr<Master>(master)](const SessionOptions& options) -> StatusOr<std::unique_ptr<Session>> {
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
