#include "millrace/collective/service.h"

#include <utility>

#include "millrace/collective/group_core.h"

namespace millrace::collective {
namespace {

enum Method { kHello, kStream, kSend, kPing, kAbort };

}  // namespace

const std::vector<std::string>& CollectiveService::methods() const {
  static const auto* const methods =
      new std::vector<std::string>{kHelloMethod, kStreamMethod, kSendMethod, kPingMethod, kAbortMethod};
  return *methods;
}

Status CollectiveService::Add(const std::string& key, std::shared_ptr<GroupCore> group) {
  MutexLock lock(&mu_);
  if (groups_.emplace(key, std::move(group)).second) return absl::OkStatus();
  return AlreadyExists("this task already has a collective group '", key, "'");
}

void CollectiveService::Remove(const std::string& key) {
  std::shared_ptr<GroupCore> group;  // released without the lock
  MutexLock lock(&mu_);
  const auto it = groups_.find(key);
  if (it == groups_.end()) return;
  group = std::move(it->second);
  groups_.erase(it);
}

void CollectiveService::OnCall(int method, std::shared_ptr<net::IncomingCall> call) {
  const net::Bytes request = std::move(call->request());
  net::BytesReader reader(request);
  Sender sender;
  if (!ReadSender(&reader, &sender))
    return call->Reply(InvalidArgument("a call of a collective group does not say who calls"));
  std::shared_ptr<GroupCore> group;
  {
    MutexLock lock(&mu_);
    if (const auto it = groups_.find(sender.group); it != groups_.end()) group = it->second;
  }
  if (group == nullptr) return call->Reply(NotFound("this task has no collective group '", sender.group, "'"));
  if (Status known = group->CheckSender(sender); !known.ok()) return call->Reply(std::move(known));
  const int from = static_cast<int>(sender.rank);
  net::Bytes body;
  switch (method) {
    case kHello:
      return call->Reply(group->OnHello(sender));
    case kStream:
      return group->OnStream(from, std::move(call));
    case kPing:
      return call->Reply(group->OnPing(from, &reader));
    case kSend:
    case kAbort:
      if (!reader.ReadBytes(reader.remaining(), &body)) return call->Reply(InvalidArgument("a message is cut"));
      // The answer means that it has arrived, so that it may come before what the message leads to.
      call->Reply(net::Bytes());
      return method == kSend ? group->OnMessage(from, body) : group->OnAbort(body);
    default:
      return call->Reply(Unimplemented("there is no such method"));
  }
}

}  // namespace millrace::collective
