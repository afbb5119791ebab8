#include "millrace/cluster/client/remote_callable.h"

#include <utility>

#include "millrace/cluster/client/remote_session.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/proto/master.pb.h"

namespace millrace {

RemoteCallable::RemoteCallable(RemoteSession* session, std::shared_ptr<MasterClient> master, CallableSpec spec,
                               int64_t handle)
    : session_(session),
      master_(std::move(master)),
      spec_(std::move(spec)),
      handle_(handle),
      session_handle_(master_->session_handle()) {}

RemoteCallable::~RemoteCallable() {
  pb::ReleaseCallableRequest request;
  request.set_session_handle(session_handle_);
  request.set_handle(handle_);
  master_->Post("ReleaseCallable", request);
}

Status RemoteCallable::Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results, const RunOptions& options,
                           RunMetadata* metadata) {
  if (feeds.size() != spec_.feeds.size()) {
    return InvalidArgument("the callable takes ", spec_.feeds.size(), " tensors, not ", feeds.size());
  }
  if (options.trace || options.output_partition_graphs) {
    // RunCallable has no options of its own.
    std::vector<Feed> named;
    for (size_t i = 0; i < feeds.size(); ++i) named.emplace_back(spec_.feeds[i], feeds[i]);
    return session_->Run(options, named, spec_.fetches, spec_.targets, results, metadata);
  }
  RunCallableCall call;
  call.session_handle = session_handle_;
  call.handle = handle_;
  call.feeds.assign(feeds.begin(), feeds.end());
  call.request_id = master_->NextRequestId();
  call.run = options.identity;
  CallLimits limits = session_->Limits(options);
  limits.every_step = true;
  MR_ASSIGN_OR_RETURN(net::Bytes request, EncodeRunCallable(call));
  MR_ASSIGN_OR_RETURN(const net::Bytes bytes, master_->Call("RunCallable", std::move(request), limits));
  MR_ASSIGN_OR_RETURN(RunCallableAnswer answer, DecodeRunCallableAnswer(bytes));
  if (answer.fetches.size() != spec_.fetches.size()) {
    return Internal("the server at ", master_->address(), " sent ", answer.fetches.size(),
                    " results of a callable, not ", spec_.fetches.size());
  }
  *results = std::move(answer.fetches);
  if (metadata != nullptr) *metadata = std::move(answer.metadata);
  return absl::OkStatus();
}

}  // namespace millrace
