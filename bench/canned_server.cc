// A gRPC server that gives TensorFlow's client canned answers, to measure the cost of a step without any work. Prints
// its port. bench/cluster uses the faster of its two implementations as the floor of a step.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/proto/master.pb.h"

namespace {

using millrace::net::Bytes;
using millrace::net::IncomingCall;
namespace pb = ::tensorflow;

std::string CreateSessionAnswer() {
  pb::CreateSessionResponse response;
  response.set_session_handle("canned");
  return response.SerializeAsString();
}

std::string ExtendSessionAnswer() {
  pb::ExtendSessionResponse response;
  response.set_new_graph_version(1);
  return response.SerializeAsString();
}

const std::string kPrefix = "/tensorflow.MasterService/";

// The canned answers by method; RunStep and all others get an empty message.
std::string AnswerTo(const std::string& method) {
  static const std::string create = CreateSessionAnswer();
  static const std::string extend = ExtendSessionAnswer();
  if (method == kPrefix + "CreateSession") return create;
  if (method == kPrefix + "ExtendSession") return extend;
  return "";
}

// The server on Millrace's transport.
class CannedService : public millrace::net::Service {
 public:
  CannedService() {
    for (const char* name : {"RunStep", "CreateSession", "ExtendSession", "CloseSession"})
      methods_.push_back(kPrefix + name);
  }
  const std::vector<std::string>& methods() const override { return methods_; }
  void OnCall(int method, std::shared_ptr<IncomingCall> call) override {
    call->request() = Bytes();
    call->Reply(Bytes::Of(AnswerTo(methods_[method])));
  }

 private:
  std::vector<std::string> methods_;
};

int ServeOnTransport() {
  CannedService service;
  const auto transport = millrace::net::NewGrpcTransport();
  auto listener = transport->Listen("localhost:0", &service);
  if (!listener.ok()) {
    std::cerr << listener.status().ToString() << "\n";
    return 1;
  }
  std::cout << (*listener)->port() << std::endl;
  pause();
  return 0;
}

// One call on gRPC's own asynchronous interface; the tags are its stages.
class PlainCall {
 public:
  PlainCall(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue)
      : service_(service), queue_(queue), stream_(&context_) {
    service_->RequestCall(&context_, &stream_, queue_, queue_, this);
  }
  void Step(bool ok) {
    if (!ok || state_ == kAnswered) {
      delete this;
    } else if (state_ == kAwaited) {
      new PlainCall(service_, queue_);
      state_ = kArrived;
      stream_.Read(&request_, this);
    } else {
      const std::string text = AnswerTo(context_.method());
      grpc::Slice slice(text);
      grpc::ByteBuffer answer(&slice, 1);
      state_ = kAnswered;
      stream_.WriteAndFinish(answer, {}, grpc::Status::OK, this);
    }
  }

 private:
  enum { kAwaited, kArrived, kAnswered } state_ = kAwaited;
  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  grpc::ByteBuffer request_;
};

int ServePlain() {
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("localhost:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterAsyncGenericService(&service);
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  new PlainCall(&service, queue.get());
  std::cout << port << std::endl;
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) static_cast<PlainCall*>(tag)->Step(ok);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Gives TensorFlow's client canned answers");
  bool plain = false;
  app.add_flag("--plain", plain, "Use gRPC's own interface instead of Millrace's transport");
  CLI11_PARSE(app, argc, argv);
  return plain ? ServePlain() : ServeOnTransport();
}
