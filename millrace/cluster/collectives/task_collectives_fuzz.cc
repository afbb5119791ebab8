// Calls of other tasks for collective ops, in any order, with any contents, some of them cancelled: every call is
// answered once, at the latest when the task goes down.
//
// The input is a sequence of calls: a byte that selects the call, a byte with the size of its body, and the body. Calls
// of the first kinds have bytes as they might come; those of the others are well-formed, of few devices, groups and
// steps, so that they meet.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "millrace/cluster/collectives/buffer_codec.h"
#include "millrace/cluster/collectives/task_collectives.h"

namespace {

using namespace millrace;  // NOLINT

struct Call {
  CancellationManager cancellation;
  int answers = 0;
};

class Calls {
 public:
  Calls() {
    TaskCollectivesOptions options;
    options.task = "/job:worker/replica:0/task:0";
    options.random = [] { return uint64_t{17}; };
    options.has_device = [](uint64_t incarnation) { return incarnation < 2; };
    task_ = std::make_shared<TaskCollectives>(std::move(options));
  }
  ~Calls() {
    task_->Shutdown(Unavailable("the task is going down"));
    for (const auto& call : calls_) MR_CHECK(call->answers == 1);
    MR_CHECK(task_->exchange().size() == 0);
  }

  void Make(int kind, const std::string& body) {
    const auto byte = [&](size_t i) { return i < body.size() ? static_cast<uint8_t>(body[i]) : uint8_t{0}; };
    switch (kind % 10) {
      case 0:
        return Parse<pb::CompleteGroupRequest>(body, [this](const auto& request) { CompleteGroup(request); });
      case 1:
        return Parse<pb::CompleteInstanceRequest>(body, [this](const auto& request) { CompleteInstance(request); });
      case 2:
        return Parse<pb::GetStepSequenceRequest>(
            body, [this](const auto& request) { (void)task_->GetStepSequence(request); });
      case 3:
        return Parse<pb::RecvBufRequest>(body, [this](const auto& request) { RecvBuf(request); });
      case 4: {
        const StatusOr<net::Bytes> buffer = DecodeRecvBufResponse(net::Bytes::Of(body));
        if (buffer.ok())
          MR_CHECK(DecodeRecvBufResponse(EncodeRecvBufResponse(*buffer, 5).value())->size() == buffer->size());
        return;
      }
      case 5: {
        pb::CompleteGroupRequest request;
        request.set_group_key(byte(0) % 3);
        request.set_group_size(byte(1) % 4);
        request.set_device_type(byte(2) % 8 == 0 ? "GPU" : "CPU");
        *request.mutable_device_attributes() = DeviceOf(byte(3));
        return CompleteGroup(request);
      }
      case 6: {
        pb::CompleteInstanceRequest request;
        request.set_group_key(byte(0) % 3);
        request.set_instance_key(byte(1) % 3);
        request.set_type(byte(2) % 6);
        request.set_data_type(static_cast<pb::DataType>(1 + byte(3) % 3));
        request.mutable_shape()->add_dim()->set_size(byte(4) % 3);
        request.set_device(DeviceOf(byte(5)).name());
        request.set_is_source(byte(6) % 2 == 0);
        return CompleteInstance(request);
      }
      case 7: {
        pb::RecvBufRequest request;
        request.set_step_id(byte(0) % 3);
        request.set_buf_rendezvous_key(std::string(1, static_cast<char>('a' + byte(1) % 3)));
        request.set_num_bytes(byte(2) % 3);
        request.set_src_incarnation(byte(3) % 3);
        return RecvBuf(request);
      }
      case 8: {
        auto call = NewCall();
        task_->exchange().Offer(byte(0) % 3, std::string(1, static_cast<char>('a' + byte(1) % 3)),
                                net::Bytes::Of(std::string(byte(2) % 3, 'x')),
                                [call](const Status&) { ++call->answers; });
        return;
      }
      default:
        if (byte(0) % 4 == 0) return task_->FailStep(byte(1) % 3, Aborted("failed"));
        if (byte(0) % 16 == 1) return task_->ReleaseCluster(byte(1) % 2 == 0);
        if (!calls_.empty()) calls_[byte(1) % calls_.size()]->cancellation.StartCancel();
    }
  }

 private:
  static pb::DeviceAttributes DeviceOf(uint8_t choice) {
    pb::DeviceAttributes device;
    device.set_name(choice % 16 == 0 ? "nonsense"
                                     : absl::StrCat("/job:worker/replica:0/task:", choice % 4, "/device:CPU:0"));
    device.set_device_type("CPU");
    device.set_incarnation(choice / 16 % 2);
    return device;
  }
  template <typename Request, typename Do>
  static void Parse(const std::string& body, Do act) {
    Request request;
    if (request.ParseFromString(body)) act(request);
  }
  std::shared_ptr<Call> NewCall() {
    calls_.push_back(std::make_shared<Call>());
    return calls_.back();
  }
  CallControl ControlOf(const std::shared_ptr<Call>& call) {
    return {.cancellation = &call->cancellation, .owner = call};
  }
  void CompleteGroup(const pb::CompleteGroupRequest& request) {
    auto call = NewCall();
    task_->CompleteGroup(ControlOf(call), request, [call](const auto&) { ++call->answers; });
  }
  void CompleteInstance(const pb::CompleteInstanceRequest& request) {
    auto call = NewCall();
    task_->CompleteInstance(ControlOf(call), request, [call](const auto&) { ++call->answers; });
  }
  void RecvBuf(const pb::RecvBufRequest& request) {
    auto call = NewCall();
    task_->RecvBuf(ControlOf(call), request, [call](const auto&) { ++call->answers; });
  }

  std::shared_ptr<TaskCollectives> task_;
  std::vector<std::shared_ptr<Call>> calls_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer silencer;  // malformed input is expected
  Calls calls;
  for (size_t at = 0; at + 2 <= size;) {
    const int kind = data[at];
    const size_t length = std::min<size_t>(data[at + 1], size - at - 2);
    calls.Make(kind, std::string(reinterpret_cast<const char*>(data) + at + 2, length));
    at += 2 + length;
  }
  return 0;
}
