// Small all-reduces of the ranks of one host, without the machinery of an operation in flight.
#include <chrono>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/match.h"
#include "millrace/collective/group_core.h"

namespace millrace::collective {
namespace {

// After this time it becomes an ordinary operation, which is watched over.
constexpr std::chrono::milliseconds kQuickPatience{20};

}  // namespace

bool GroupCore::BeginQuick(uint64_t* sequence) {
  MutexLock lock(&mu_);
  for (int rank = 0; rank < size() && !all_have_mailboxes_; ++rank) {
    if (rank != options_.rank && others_[rank]->own_mailbox == nullptr) return false;
  }
  all_have_mailboxes_ = true;
  if (!failed_.ok() || in_flight_ > 0 || attending_ > 0 || !waiting_.empty() || !running_.empty()) return false;
  *sequence = next_sequence_++;
  quick_ = *sequence;
  quick_disturbed_.store(false, std::memory_order_relaxed);
  ++attending_;
  return true;
}

bool GroupCore::EndQuick(std::vector<QuickMessage>* others) {
  MutexLock lock(&mu_);
  quick_.reset();
  others->swap(quick_messages_);
  --attending_;
  return UpdateMustCall();
}

void GroupCore::DisturbQuick() {
  quick_disturbed_.store(true, std::memory_order_release);
  if (Mailroom* const room = mailroom_.load(std::memory_order_acquire); room != nullptr) room->bell()->Ring();
}

int GroupCore::TakeQuick(Mailroom* room, absl::string_view head, size_t size, absl::Span<std::string> texts) {
  absl::InlinedVector<std::shared_ptr<Instance>, 4> instances;
  Status wrong;
  int missing = -1;
  {
    MutexLock lock(&mail_mu_);
    for (const int from : mail_from_) {
      std::string& text = texts[from];
      while (text.empty() && wrong.ok()) {
        const StatusOr<bool> taken = room->Take(from, &text);
        if (taken.ok() && !*taken) break;
        // All ranks describe the operation with the same bytes.
        if (taken.ok() && text.size() == size && absl::StartsWith(text, head)) continue;
        auto instance = taken.ok() ? QueueMessage(from, net::Bytes::Of(std::exchange(text, {}))) : taken.status();
        if (instance.ok() && *instance != nullptr) instances.push_back(*std::move(instance));
        if (!instance.ok()) wrong = WithPrefix(absl::StrCat(RankName(from), ": "), instance.status());
      }
      if (text.empty() && missing < 0) missing = from;
    }
  }
  for (const std::shared_ptr<Instance>& instance : instances) instance->Work();
  if (!wrong.ok()) Fail(std::move(wrong));
  return missing;
}

std::optional<Status> GroupCore::QuickAllReduce(const OperationSpec& spec, const Workspace& work, int64_t count,
                                                RefPtr<const RefCounted> owner) {
  Mailroom* const room = mailroom_.load(std::memory_order_acquire);
  uint64_t sequence = 0;
  if (room == nullptr || !BeginQuick(&sequence)) return std::nullopt;
  const std::string head = EncodeHead({.sequence = sequence, .spec = spec});
  const absl::string_view elements = work.bytes(0, count);
  const net::Bytes message = net::Bytes::Of(absl::StrCat(head, elements));
  for (int distance = 1; distance < size(); ++distance) SendTo((rank() + distance) % size(), message);
  std::vector<std::string> texts(static_cast<size_t>(size()));  // what the others have sent
  int missing = 0;
  for (bool waited = true; waited && !quick_disturbed_.load(std::memory_order_acquire);) {
    const uint32_t seen = room->bell()->rung();
    missing = TakeQuick(room, head, message.size(), absl::MakeSpan(texts));
    if (missing < 0) break;
    ChooseRinger(room, missing);
    waited = room->bell()->Wait(seen, kQuickPatience);
  }
  std::vector<QuickMessage> others;
  if (missing >= 0) {
    // What has been sent is sent again, with the same numbers; the others ignore what they have already.
    Status status;
    Instance::Part part{.spec = spec, .algorithm = NewFullExchange({rank(), size()}, work, count), .owner = owner};
    Begun begun;
    {
      MutexLock lock(&mu_);
      status = failed_;
      if (status.ok()) begun = Next(sequence, absl::InfiniteDuration());
    }
    const bool look = EndQuick(&others) || begun.look;
    if (!status.ok()) return status;
    begun.look = look;
    for (int from = 0; from < size(); ++from) {
      if (texts[from].empty()) continue;
      const auto queued = QueueMessage(from, net::Bytes::Of(std::move(texts[from])));
      static_cast<void>(queued);  // if the group has failed, so has the operation
    }
    for (QuickMessage& other : others) begun.instance->Queue(other.from, std::move(other.message));
    const bool attended = Attend(
        [&](Instance::Done done) {
          part.done = std::move(done);
          Launch(std::move(begun), std::move(part), absl::InfiniteDuration());
        },
        &status);
    MR_CHECK(attended);
    return status;
  }
  const bool look = EndQuick(&others);
  // In the order of FullExchange.
  for (int from = 0; from < size(); ++from) {
    if (from == 0 && rank() == 0) continue;
    net::Bytes own;
    if (from == rank()) {
      net::BytesReader reader(message);
      MR_CHECK(reader.Skip(head.size()) && reader.ReadBytes(reader.remaining(), &own));
    } else {
      own.Append(absl::string_view(texts[from]).substr(head.size()), nullptr);
    }
    const Status combined =
        from == 0 ? work.Put(0, count, Incoming(own)) : work.Combine(0, count, Incoming(own), /*message_first=*/false);
    MR_CHECK(combined.ok());
  }
  work.Finish(0, count, size());
  if (look) TakeMail();
  return absl::OkStatus();
}

}  // namespace millrace::collective
