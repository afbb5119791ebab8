#include "millrace/tools/bench_net/partner.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "millrace/net/address.h"
#include "millrace/tools/bench_net/touched_memory.h"
#include "millrace/tools/bench_net/transport_kinds.h"

namespace millrace::bench_net {
namespace {

// The memory, kept alive while an answer is being sent.
struct SentMemory : RefCounted {
  explicit SentMemory(TouchedMemory from) : memory(std::move(from)) {}
  const TouchedMemory memory;
};

// Answers kReadMethod with as many bytes as the request asks for.
class ReadService : public net::Service {
 public:
  explicit ReadService(RefPtr<SentMemory> memory) : memory_(std::move(memory)) {}
  const std::vector<std::string>& methods() const override { return methods_; }
  void OnCall(int, std::shared_ptr<net::IncomingCall> call) override {
    uint64_t size;
    if (!net::BytesReader(call->request()).Read(&size, sizeof(size)) || size > memory_->memory.size()) {
      return call->Reply(InvalidArgument("bench-net: the request asks for more bytes than there are"));
    }
    net::Bytes answer;
    answer.Append({memory_->memory.data(), size}, memory_);
    call->Reply(std::move(answer));
  }

 private:
  const std::vector<std::string> methods_ = {kReadMethod};
  const RefPtr<SentMemory> memory_;
};

class Partner {
 public:
  Partner(Connection control, PartnerOptions options) : control_(std::move(control)), options_(std::move(options)) {}

  Status Serve() {
    while (true) {
      pollfd ready[] = {{.fd = control_.fd(), .events = POLLIN, .revents = 0},
                        {.fd = options_.data ? options_.data.fd() : -1, .events = POLLIN, .revents = 0}};
      if (poll(ready, 2, -1) < 0) {
        if (errno == EINTR) continue;
        return Unavailable("poll: ", strerror(errno));
      }
      if (ready[1].revents != 0 && !AnswerData().ok()) options_.data = Connection();
      if (ready[0].revents == 0) continue;
      const StatusOr<std::string> line = control_.ReadLine();
      if (!line.ok()) return absl::IsUnavailable(line.status()) ? absl::OkStatus() : line.status();
      const StatusOr<std::string> answer = Obey(*line);
      MR_RETURN_IF_ERROR(control_.SendLine(answer.ok() ? absl::StrCat("ok ", *answer)
                                                       : absl::StrCat("error ", answer.status().message())));
    }
  }

 private:
  Status AnswerData() {
    uint64_t question;
    MR_RETURN_IF_ERROR(options_.data.Receive(&question, sizeof(question)));
    const uint64_t size = question & ~kReady;
    if (memory_ == nullptr || size > memory_->memory.size())
      return InvalidArgument("the request asks for more bytes than there are");
    return options_.data.Send(memory_->memory.data(), (question & kReady) != 0 ? 1 : size);
  }

  StatusOr<std::string> Obey(const std::string& line) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (!greeted_) {
      if (line != kHello) return InvalidArgument("this bench-net has another version");
      greeted_ = true;
      char name[65] = "?";
      gethostname(name, sizeof(name) - 1);
      return absl::StrCat(std::thread::hardware_concurrency(), " ", options_.max_size, " ", name);
    }
    if (words[0] == "memory" && words.size() == 2) return MakeMemory(words[1]);
    if (words[0] == "tcp") return OpenTcp();
    if (words[0] == "transport" && words.size() == 2) return OpenTransport(words[1]);
    return InvalidArgument("bench-net does not know '", words[0], "'");
  }

  StatusOr<std::string> MakeMemory(const std::string& text) {
    size_t size;
    if (!absl::SimpleAtoi(text, &size) || size == 0 || size > options_.max_size)
      return InvalidArgument("memory of ", text, " bytes exceeds the limit");
    listener_.reset();
    service_.reset();
    MR_ASSIGN_OR_RETURN(TouchedMemory memory, TouchedMemory::Private(size));
    memory_.reset();
    memory_ = MakeRef<SentMemory>(std::move(memory));
    if (options_.shared.ok()) {
      MR_ASSIGN_OR_RETURN(shared_, TouchedMemory::Shared(options_.shared.get(), size));
    }
    return absl::StrCat(getpid(), " ", reinterpret_cast<uintptr_t>(memory_->memory.data()));
  }

  // The answer is sent before the connection is accepted.
  StatusOr<std::string> OpenTcp() {
    MR_ASSIGN_OR_RETURN(const TcpListener listener, ListenTcp(options_.host, 0));
    MR_RETURN_IF_ERROR(control_.SendLine(absl::StrCat("ok ", listener.port)));
    MR_ASSIGN_OR_RETURN(options_.data, AcceptTcp(listener, kSilenceSeconds));
    return std::string("connected");
  }

  StatusOr<std::string> OpenTransport(const std::string& name) {
    if (memory_ == nullptr) return FailedPrecondition("memory must be requested first");
    listener_.reset();
    transport_.reset();
    for (const TransportKind& kind : TransportKinds()) {
      if (kind.name != name) continue;
      transport_ = kind.make();
      service_ = std::make_unique<ReadService>(memory_);
      MR_ASSIGN_OR_RETURN(listener_, transport_->Listen(net::JoinHostPort(options_.host, 0), service_.get()));
      return absl::StrCat(listener_->port());
    }
    return NotFound("the other side has no transport '", name, "'");
  }

  Connection control_;
  PartnerOptions options_;
  bool greeted_ = false;
  RefPtr<SentMemory> memory_;
  TouchedMemory shared_;
  // Later members use earlier ones.
  std::unique_ptr<ReadService> service_;
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<net::Listener> listener_;
};

}  // namespace

Status ServePartner(Connection control, PartnerOptions options) {
  return Partner(std::move(control), std::move(options)).Serve();
}

int RunPartnerProcess() {
  const Status status = ServePartner(
      Connection(Fd(kControlFd)),
      {.max_size = std::numeric_limits<size_t>::max() / 2, .data = Connection(Fd(kDataFd)), .shared = Fd(kSharedFd)});
  if (status.ok()) return 0;
  std::cerr << "millrace bench-net: the partner process: " << status.message() << "\n";
  return 1;
}

}  // namespace millrace::bench_net
