// Messages of a group through the shared memory of a host, and threads that wait for them.
#include <algorithm>
#include <thread>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "millrace/collective/group_core.h"

namespace millrace::collective {

Mailroom* GroupCore::OpenMailroom(int from) {
  {
    MutexLock lock(&mu_);
    if (!std::exchange(mailroom_tried_, true)) {
      StatusOr<std::unique_ptr<Mailroom>> made = Mailroom::Make(size());
      if (made.ok()) {
        own_mailroom_ = *std::move(made);
        mailroom_.store(own_mailroom_.get(), std::memory_order_release);
        static_cast<void>(UpdateMustCall());  // nobody has left anything yet
      }
    }
  }
  Mailroom* const room = mailroom_.load(std::memory_order_acquire);
  if (room == nullptr) return nullptr;
  MutexLock lock(&mail_mu_);
  if (std::find(mail_from_.begin(), mail_from_.end(), from) == mail_from_.end()) mail_from_.push_back(from);
  return room;
}

bool GroupCore::UpdateMustCall() {
  const bool must = attending_ == 0 && in_flight_ > 0;
  if (own_mailroom_ == nullptr || must == must_call_) return false;
  must_call_ = must;
  own_mailroom_->set_must_call(must);
  return must;
}

void GroupCore::SendTo(int rank, net::Bytes message) {
  Other& other = *others_[rank];
  if (Mailbox* const box = other.mailbox.load(std::memory_order_acquire); box != nullptr) {
    const Mailbox::Left left = box->Leave(message);
    if (left == Mailbox::Left::kYes) return;
    if (left == Mailbox::Left::kCall) message = net::Bytes::Of(EncodeHead({.kind = MessageKind::kMail}));
  }
  other.link.Send(std::move(message));
}

void GroupCore::RingAttending() {
  if (Mailroom* const room = mailroom_.load(std::memory_order_acquire); room != nullptr) room->bell()->Ring();
}

void GroupCore::ChooseRinger(Mailroom* room, int awaited) {
  MutexLock lock(&mu_);
  if (attending_ > 1 || in_flight_ > 1) awaited = -1;
  if (attending_ == 1 && in_flight_ == 1 && !quick_.has_value()) {
    const auto begun = std::find_if(running_.begin(), running_.end(), [](const auto& at) { return at.second.begun; });
    if (begun != running_.end()) awaited = begun->second.instance->awaited();
  }
  room->bell()->set_only(static_cast<uint32_t>(awaited + 1));
}

void GroupCore::TakeMail(bool attends) {
  Mailroom* const room = mailroom_.load(std::memory_order_acquire);
  if (room == nullptr) return;
  absl::InlinedVector<std::shared_ptr<Instance>, 4> instances;
  Status wrong;
  {
    // Messages are queued while it is held, so that a thread which has had it afterwards finds them all there.
    MutexLock lock(&mail_mu_);
    for (const int from : mail_from_) {
      std::string text;
      for (;;) {
        const StatusOr<bool> taken = room->Take(from, &text);
        if (taken.ok() && !*taken) break;
        auto instance = taken.ok() ? QueueMessage(from, net::Bytes::Of(std::move(text))) : taken.status();
        if (!instance.ok()) {
          wrong = WithPrefix(absl::StrCat(RankName(from), ": "), instance.status());
          break;
        }
        if (*instance != nullptr && (instances.empty() || instances.back() != *instance))
          instances.push_back(*std::move(instance));
      }
    }
  }
  for (const std::shared_ptr<Instance>& instance : instances) instance->Work();
  if (!attends && !instances.empty()) RingAttending();
  if (!wrong.ok()) Fail(std::move(wrong));
}

bool GroupCore::Attend(absl::FunctionRef<void(Instance::Done)> start, Status* result) {
  Mailroom* const room = mailroom_.load(std::memory_order_acquire);
  if (room == nullptr) return false;
  {
    MutexLock lock(&mu_);
    ++attending_;
    room->bell()->set_only(0);
    static_cast<void>(UpdateMustCall());  // this thread looks
  }
  std::atomic<bool> over{false};
  start([self = shared_from_this(), room, result, &over, here = std::this_thread::get_id()](Status status) {
    *result = std::move(status);
    // The waiting thread may be gone after this.
    over.store(true, std::memory_order_release);
    if (std::this_thread::get_id() != here) room->bell()->Ring();
  });
  while (!over.load(std::memory_order_acquire)) {
    const uint32_t seen = room->bell()->rung();
    TakeMail(/*attends=*/true);
    if (over.load(std::memory_order_acquire)) break;
    ChooseRinger(room);
    room->bell()->Wait(seen);
  }
  bool look;
  {
    MutexLock lock(&mu_);
    --attending_;
    look = UpdateMustCall();
  }
  if (look) TakeMail();
  return true;
}

}  // namespace millrace::collective
