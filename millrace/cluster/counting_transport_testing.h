// A transport that counts the messages of each method. For tests only.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"

namespace millrace {

// The number of messages sent and received, by the method's name without its service. Thread-safe.
class MessageCounts {
 public:
  void Count(const std::string& method) {
    MutexLock lock(&mu_);
    ++counts_[method.substr(method.rfind('/') + 1)];
  }
  std::map<std::string, int> Take() {
    MutexLock lock(&mu_);
    return std::exchange(counts_, {});
  }

 private:
  Mutex mu_;
  std::map<std::string, int> counts_ ABSL_GUARDED_BY(mu_);
};

// Counts the messages of all its channels. `transport` and `counts` must outlive it.
class CountingTransport : public net::Transport {
 public:
  CountingTransport(net::Transport* transport, MessageCounts* counts) : transport_(transport), counts_(counts) {}

  std::shared_ptr<net::Channel> Connect(const std::string& address) override {
    return std::make_shared<Channel>(transport_->Connect(address), counts_, without_stream_);
  }
  // The next `steps` steps at a peer find no stream, as they do until a lost connection has been made again.
  void HideStreams(int steps) { without_stream_->store(steps); }
  StatusOr<std::unique_ptr<net::Listener>> Listen(const std::string& address, net::Service* service) override {
    return transport_->Listen(address, service);
  }

 private:
  class Call : public net::OutgoingStream {
   public:
    Call(RefPtr<net::OutgoingStream> call, std::string method, MessageCounts* counts)
        : call_(std::move(call)), method_(std::move(method)), counts_(counts) {}
    void Cancel() override { call_->Cancel(); }
    void Send(net::Bytes message) override {
      counts_->Count(method_);
      call_->Send(std::move(message));
    }

   private:
    const RefPtr<net::OutgoingStream> call_;
    const std::string method_;
    MessageCounts* const counts_;
  };

  class Channel : public net::Channel, public net::StreamingChannel {
   public:
    Channel(std::shared_ptr<net::Channel> channel, MessageCounts* counts, std::shared_ptr<std::atomic<int>> without)
        : net::Channel(channel->address()),
          channel_(std::move(channel)),
          counts_(counts),
          without_stream_(std::move(without)) {}
    RefPtr<net::OutgoingCall> Call(const std::string& method, net::Bytes request, const net::CallOptions& options,
                                   Done done) override {
      counts_->Count(method);
      return channel_->Call(method, std::move(request), options, Counted(method, std::move(done)));
    }
    net::StreamingChannel* streaming() override {
      for (int left = without_stream_->load(); left > 0;) {
        if (without_stream_->compare_exchange_weak(left, left - 1)) return nullptr;
      }
      return channel_->streaming() != nullptr ? this : nullptr;
    }
    RefPtr<net::OutgoingStream> Stream(const std::string& method, net::Bytes request, const net::CallOptions& options,
                                       net::MessageHandler on_message, net::CallDone done) override {
      net::StreamingChannel* const streaming = channel_->streaming();
      if (streaming == nullptr) {
        done(Unavailable("the connection was lost"));
        return nullptr;
      }
      counts_->Count(method);
      auto counted = [counts = counts_, method, on_message = std::move(on_message)](net::Bytes message) mutable {
        counts->Count(method);
        on_message(std::move(message));
      };
      return MakeRef<CountingTransport::Call>(
          streaming->Stream(method, std::move(request), options, std::move(counted), Counted(method, std::move(done))),
          method, counts_);
    }

   private:
    Done Counted(const std::string& method, Done done) {
      return [counts = counts_, method, done = std::move(done)](StatusOr<net::Bytes> answer) mutable {
        counts->Count(method);
        done(std::move(answer));
      };
    }

    const std::shared_ptr<net::Channel> channel_;
    MessageCounts* const counts_;
    const std::shared_ptr<std::atomic<int>> without_stream_;
  };

  net::Transport* const transport_;
  MessageCounts* const counts_;
  const std::shared_ptr<std::atomic<int>> without_stream_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace millrace
