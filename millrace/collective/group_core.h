// The state of a group on this rank: its links to the others, its operations in flight, and whether it has failed.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_handover.h"
#include "millrace/collective/group_options.h"
#include "millrace/collective/instance.h"
#include "millrace/collective/mailroom.h"
#include "millrace/collective/peer_link.h"
#include "millrace/collective/wire.h"

namespace millrace::collective {

// The methods of CollectiveService.
inline constexpr char kHelloMethod[] = "/millrace.Collective/Hello";
inline constexpr char kStreamMethod[] = "/millrace.Collective/Stream";
inline constexpr char kSendMethod[] = "/millrace.Collective/Send";
inline constexpr char kPingMethod[] = "/millrace.Collective/Ping";
inline constexpr char kAbortMethod[] = "/millrace.Collective/Abort";

// Reacts to the calls of its owner, to messages and to timers; has no thread of its own. The rank with the lower number
// opens the link between two ranks, when an operation first needs it.
//
// The first error ends the group: all operations in flight and all later ones get it, and all other ranks are told.
//
// Thread-safe. Calls no callback with a lock held.
class GroupCore final : public InstanceHost, public std::enable_shared_from_this<GroupCore> {
 public:
  explicit GroupCore(GroupOptions options);

  // Starts an operation; DEADLINE_EXCEEDED names the ranks that are missing after `timeout`.
  void Start(Instance::Part part, absl::Duration timeout);
  // Waits for all ranks, then takes leave of them. After an error it waits until the others have been told.
  void Leave(Instance::Done done);
  // The owner is gone: fails what is in flight, and lets the other ranks know.
  void Close();

  // Calls of other ranks, for the service. The sender has been checked by CheckSender.
  Status CheckSender(const Sender& sender);
  // Answers why the group has failed; empty if it has not.
  net::Bytes OnHello(const Sender& sender);
  void OnStream(int from, std::shared_ptr<net::IncomingCall> call);
  void OnMessage(int from, const net::Bytes& bytes);
  // Answers how many operations this rank has started, or why the group has failed.
  StatusOr<net::Bytes> OnPing(int from, net::BytesReader* reader);
  void OnAbort(const net::Bytes& status);

  // A thread that waits for an operation enters it, so that it can read its messages itself.
  const RefPtr<ThreadHandover>& handover() const { return handover_; }
  const GroupOptions& options() const { return options_; }
  // The ranks of each host.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }

  // If there are messages through shared memory: starts an operation, handles them on this thread until it is complete,
  // and gives its status. Otherwise returns false and does nothing.
  bool Attend(absl::FunctionRef<void(Instance::Done)> start, Status* result);
  // An all-reduce by full exchange, on a thread that waits for it. Returns nothing, and does nothing, if it must be
  // started as an ordinary operation: ranks are on other hosts, or operations are in flight.
  std::optional<Status> QuickAllReduce(const OperationSpec& spec, const Workspace& work, int64_t count,
                                       RefPtr<const RefCounted> owner);

  // InstanceHost
  int rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(options_.ranks.size()); }
  const std::string& RankName(int rank) const override { return names_[rank]; }
  void SendTo(int rank, net::Bytes message) override;
  bool ReadsOurs(int rank) const override { return others_[rank]->reads_ours.load(std::memory_order_acquire); }
  std::shared_ptr<const LentMemory> MemoryOf(int rank) const override;
  Mailroom* mailroom() const override { return mailroom_.load(std::memory_order_acquire); }
  bool SeesSlots(int rank) const override { return others_[rank]->sees_slots.load(std::memory_order_acquire); }
  Mailbox* MailboxOf(int rank) const override { return others_[rank]->mailbox.load(std::memory_order_acquire); }
  void KeepForReaders(RefPtr<const RefCounted> owner) override;
  void Fail(Status why) override;
  void Ended(uint64_t sequence, bool all_took_part) override;

 private:
  struct Other {
    std::shared_ptr<net::Channel> channel;
    PeerLink link;
    std::atomic<bool> reads_ours{false};
    std::atomic<bool> sees_slots{false};     // it has opened this rank's mailroom
    std::atomic<Mailbox*> mailbox{nullptr};  // own_mailbox
    // Guarded by mu_.
    bool known = false;        // it has answered, or called
    uint64_t incarnation = 0;  // of a known one, once it has called
    bool left = false;
    bool ended = false;  // the link is over
    bool pinging = false;
    uint64_t started = 0;  // operations, as far as we know
    absl::Time wanted_since = absl::InfiniteFuture();
    absl::Duration retry = absl::Milliseconds(10);
    std::string why_absent;
    bool memory_tried = false;
    std::shared_ptr<const LentMemory> memory;  // null if it cannot be read
    std::unique_ptr<Mailbox> own_mailbox;      // null if there is none; constant once set
  };
  struct Running {
    std::shared_ptr<Instance> instance;
    bool begun = false;
    absl::Time deadline = absl::InfiniteFuture();
    absl::Duration timeout = absl::InfiniteDuration();
    absl::Time since = absl::InfiniteFuture();
    uint64_t wait = 0;  // in the registry
  };
  struct Waiting {
    Instance::Part part;
    absl::Duration timeout;
  };

  std::string OwnSender(bool by_calls = false) const;
  net::Bytes Call(absl::string_view body = {}) const;
  Running& Find(uint64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct Begun {
    std::shared_ptr<Instance> instance;
    bool look = false;  // for mail
  };
  void Launch(Begun begun, Instance::Part part, absl::Duration timeout);
  // The next operation that this rank starts.
  Begun Next(absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return Next(next_sequence_++, timeout); }
  Begun Next(uint64_t sequence, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends everything with `why`, of which `aborts` calls will tell others. Returns false if the group has already
  // failed.
  bool EndOperations(const Status& why, int aborts);
  void CloseLinks(const net::Bytes& last);

  // The instance that a message of an operation is for, which has it in its queue: call Work. Null if the message is
  // late; an error if it is none that this rank may get now.
  StatusOr<std::shared_ptr<Instance>> QueueMessage(int from, const net::Bytes& bytes);
  StatusOr<std::shared_ptr<Instance>> QueueMessage(int from, Message message);

  // group_mail.cc: messages through the shared memory of a host. They need not wake this process: if an operation is in
  // flight, either a thread attends (it looks, or waits at the bell), or senders call (kMail). Otherwise they lie until
  // the next operation begins. Messages overtake those of the stream, and the other way round.
  //
  // This rank's mailroom, in which `from` may leave messages from now on; null if there is none.
  Mailroom* OpenMailroom(int from);
  // Handles what others have left. `attends`: this thread will look again before it waits at the bell.
  void TakeMail(bool attends = false);
  // Lets a thread that attends see that an operation has gone on without it: it may wait for another rank now.
  void RingAttending();
  // Call it before a thread that attends waits: messages of ranks that it does not wait for should not wake it.
  // `awaited` is the rank that it waits for if there is a quick operation.
  void ChooseRinger(Mailroom* room, int awaited = -1);
  // Call it when attending_ or in_flight_ has changed. If it returns true, call TakeMail.
  [[nodiscard]] bool UpdateMustCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // group_quick.cc: an operation that has a number but no instance. Messages are the same as those of an ordinary one,
  // which other ranks may have. If something else than these comes, or nothing for a while, it becomes one itself.
  struct QuickMessage {
    int from;
    Message message;
  };
  // Returns false if the next operation must be an ordinary one.
  [[nodiscard]] bool BeginQuick(uint64_t* sequence);
  // Gives the messages that were not taken by TakeQuick. If it returns true, call TakeMail.
  [[nodiscard]] bool EndQuick(std::vector<QuickMessage>* others);
  // Takes the message of each rank that begins with `head` and has this size, unless it is there already. Returns
  // the first rank of which there is none; negative if all are there.
  int TakeQuick(Mailroom* room, absl::string_view head, size_t size, absl::Span<std::string> texts);
  // The quick operation, if there is one, should look what has happened.
  void DisturbQuick();

  // The transport and the registry of waits are the owner's: they are used between a successful Borrow and Return only,
  // and Close waits for the latter. What is done in between calls nobody back.
  [[nodiscard]] bool Borrow();
  void Return();

  // group_links.cc
  void WantLink(int rank);
  void Dial(int rank);
  void OnHelloAnswer(int rank, const StatusOr<net::Bytes>& answered);
  void OpenLink(int rank);
  void OfferMemory(int rank, uint8_t sees);
  void OnMemory(int rank, const net::Bytes& payload);
  void OpenByCalls(int rank);
  void SendByCall(int rank, net::Bytes message);
  void OnLinkEnd(int rank, const Status& why);
  void OnLeft(int rank);
  void CheckLeave();

  // group_watch.cc
  // An operation has begun that may take `timeout`.
  void Poke(absl::Duration timeout);
  void ScheduleTick(absl::Duration delay, uint64_t number);
  void Tick(uint64_t number);
  // How often to look after an operation.
  absl::Duration WatchInterval(absl::Duration timeout) const;
  void Ping(int rank, const OperationSpec& spec, uint64_t sequence);
  void OnPingAnswer(int rank, absl::Time asked, const StatusOr<net::Bytes>& answer);
  // The ranks that have not started the operation; if all have, the one that it waits for.
  std::string Missing(const Instance& instance) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RegisterWait(uint64_t sequence, const OperationSpec& spec);
  // The line to announce at `now`, if an operation waits since `since`; empty if there is none.
  std::string NameAbsent(absl::Time now, absl::Time since) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The line that ends what NameAbsent has begun, once nobody is absent; otherwise empty.
  std::string NameNobody() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<std::string> Absent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Announce(const std::string& line);

  const GroupOptions options_;
  const uint64_t incarnation_;
  const RefPtr<ThreadHandover> handover_ = MakeRef<ThreadHandover>();
  const std::vector<std::vector<int>> hosts_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Other>> others_;  // by rank; this rank has one as well, which is not used

  std::atomic<Mailroom*> mailroom_{nullptr};  // own_mailroom_
  Mutex mail_mu_;                             // before mu_; held while messages are taken and queued
  std::vector<int> mail_from_ ABSL_GUARDED_BY(mail_mu_);

  mutable Mutex mu_;
  Status failed_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool lenders_gone_ ABSL_GUARDED_BY(mu_) = false;
  int borrowed_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar returned_;
  bool all_joined_ ABSL_GUARDED_BY(mu_) = false;  // an operation of all ranks was complete
  uint64_t next_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Running> running_ ABSL_GUARDED_BY(mu_);  // also those that only others have started
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  bool mailroom_tried_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<Mailroom> own_mailroom_ ABSL_GUARDED_BY(mu_);  // constant once set
  int attending_ ABSL_GUARDED_BY(mu_) = 0;                       // threads in Attend
  bool must_call_ ABSL_GUARDED_BY(mu_) = false;                  // as the mailroom says
  bool all_have_mailboxes_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<uint64_t> quick_ ABSL_GUARDED_BY(mu_);             // the number of the quick operation
  std::vector<QuickMessage> quick_messages_ ABSL_GUARDED_BY(mu_);  // for it, and not in the way that it expects
  std::atomic<bool> quick_disturbed_{false};
  uint64_t tick_ ABSL_GUARDED_BY(mu_) = 0;  // the number of the tick that is scheduled; others are void
  absl::Time next_tick_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  // When to name again the ranks that have not joined; the infinite past if none has been named.
  absl::Time name_absent_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  // Calls that are not answered, with messages and with the news of a failure.
  int sends_ ABSL_GUARDED_BY(mu_) = 0;
  int aborts_ ABSL_GUARDED_BY(mu_) = 0;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool leave_sent_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Instance::Done> leavers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::collective
