// A non-blocking client of a simulated cluster, which speaks the master's protocol. For tests only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/cluster/client/watched_channel.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/cluster/sim/sim_cluster_testing.h"
#include "millrace/proto/master.pb.h"

namespace millrace {

// A call and its result.
struct Ticket {
  std::string what;
  bool done = false;
  Status status;
  NamedTensors tensors;  // the fetches of a step
  std::string handle;    // of a partial run
  absl::Time begun, ended;
  absl::Duration timeout = absl::InfiniteDuration();
  RefPtr<net::OutgoingCall> call;

  float Value(absl::string_view name) const {
    for (const auto& [fetch, tensor] : tensors) {
      if (fetch == name) return tensor.dtype() == DType::kFloat ? tensor.scalar<float>() : -1;
    }
    return -1e9f;
  }
};
using TicketPtr = std::shared_ptr<Ticket>;

// One session of one client, on a host of its own. Used by one thread. The cluster must outlive it.
class SimClient {
 public:
  SimClient(SimCluster* cluster, const std::string& host, const std::string& task)
      : cluster_(cluster),
        host_(host),
        transport_(cluster->network().NewTransport(host)),
        channel_(WatchChannel(transport_->Connect(SimCluster::Address(task)),
                              {.timers = cluster->network().timers(host)})) {}

  const std::string& host() const { return host_; }
  const std::string& session() const { return session_; }
  bool has_session() const { return !session_.empty(); }
  void Forget() { session_.clear(); }
  // Of the sessions that are created from now on.
  std::vector<std::string> device_filters = {};
  // The identity of the following runs.
  void set_run(const RunIdentity& run) { run_ = run; }

  TicketPtr Create(const pb::GraphDef& graph, absl::Duration timeout = absl::InfiniteDuration(),
                   int64_t operation_timeout_ms = 0) {
    pb::CreateSessionRequest request;
    *request.mutable_graph_def() = graph;
    if (operation_timeout_ms > 0) request.mutable_config()->set_operation_timeout_in_ms(operation_timeout_ms);
    for (const std::string& filter : device_filters) request.mutable_config()->add_device_filters(filter);
    return Call("CreateSession", net::Serialize(request), timeout, [this](Ticket*, const net::Bytes& bytes) {
      pb::CreateSessionResponse response;
      MR_RETURN_IF_ERROR(net::Parse(bytes, &response));
      session_ = response.session_handle();
      return absl::OkStatus();
    });
  }
  TicketPtr Run(NamedTensors feeds, std::vector<std::string> fetches, std::vector<std::string> targets = {},
                absl::Duration timeout = absl::InfiniteDuration(), absl::Duration step_timeout = absl::ZeroDuration()) {
    RunStepCall step;
    step.feeds = std::move(feeds);
    step.fetches = std::move(fetches);
    step.targets = std::move(targets);
    step.options.set_timeout_in_ms(absl::ToInt64Milliseconds(step_timeout));
    return RunStep(std::move(step), timeout);
  }
  TicketPtr SetUpPartial(const std::vector<std::string>& feeds, const std::vector<std::string>& fetches) {
    pb::PartialRunSetupRequest request;
    request.set_session_handle(session_);
    for (const std::string& name : feeds) request.add_feed(name);
    for (const std::string& name : fetches) request.add_fetch(name);
    return Call("PartialRunSetup", net::Serialize(request), absl::InfiniteDuration(),
                [](Ticket* ticket, const net::Bytes& bytes) {
                  pb::PartialRunSetupResponse response;
                  MR_RETURN_IF_ERROR(net::Parse(bytes, &response));
                  ticket->handle = response.partial_run_handle();
                  return absl::OkStatus();
                });
  }
  TicketPtr RunPartial(const std::string& handle, NamedTensors feeds, std::vector<std::string> fetches,
                       absl::Duration timeout = absl::InfiniteDuration()) {
    RunStepCall step;
    step.partial_run_handle = handle;
    step.feeds = std::move(feeds);
    step.fetches = std::move(fetches);
    return RunStep(std::move(step), timeout);
  }
  TicketPtr Extend(const pb::GraphDef& graph, int64_t version) {
    pb::ExtendSessionRequest request;
    request.set_session_handle(session_);
    *request.mutable_graph_def() = graph;
    request.set_current_graph_version(version);
    return Call("ExtendSession", net::Serialize(request));
  }
  TicketPtr Close() {
    pb::CloseSessionRequest request;
    request.set_session_handle(session_);
    return Call("CloseSession", net::Serialize(request));
  }
  TicketPtr Reset() { return Call("Reset", net::Serialize(pb::ResetRequest())); }

  // Returns false if the call has not ended within `limit`.
  bool Wait(const TicketPtr& ticket, absl::Duration limit = absl::Hours(1)) {
    return cluster_->network().RunUntil([&] { return ticket->done; }, limit);
  }

 private:
  using Read = std::function<Status(Ticket*, const net::Bytes&)>;
  TicketPtr RunStep(RunStepCall step, absl::Duration timeout) {
    step.session_handle = session_;
    step.store_errors_in_response_body = true;
    step.request_id = next_request_id_++;
    if (run_.given()) *step.options.mutable_millrace_run() = ToProto(run_);
    return Call("RunStep", EncodeRunStep(step).value(), timeout, [](Ticket* ticket, const net::Bytes& bytes) {
      MR_ASSIGN_OR_RETURN(RunStepAnswer answer, DecodeRunStepAnswer(bytes));
      ticket->tensors = std::move(answer.tensors);
      return answer.status;
    });
  }
  TicketPtr Call(const std::string& method, net::Bytes request, absl::Duration timeout = absl::InfiniteDuration(),
                 Read read = nullptr) {
    auto ticket = std::make_shared<Ticket>();
    ticket->what = method;
    ticket->begun = cluster_->network().clock()->Now();
    ticket->timeout = timeout;
    ticket->call = channel_->Call(
        "/tensorflow.MasterService/" + method, std::move(request), {.timeout = timeout},
        [this, ticket, read = std::move(read)](StatusOr<net::Bytes> answer) {
          ticket->status = answer.status();
          if (answer.ok() && read != nullptr) ticket->status = read(ticket.get(), *answer);
          ticket->ended = cluster_->network().clock()->Now();
          ticket->done = true;
          cluster_->network().Log(absl::StrCat(host_, ": ", ticket->what, " ended: ", ticket->status.ToString()));
        });
    return ticket;
  }

  SimCluster* const cluster_;
  const std::string host_;
  std::unique_ptr<net::Transport> transport_;
  const std::shared_ptr<net::Channel> channel_;
  std::string session_;
  RunIdentity run_;
  int64_t next_request_id_ = 1;
};

}  // namespace millrace
