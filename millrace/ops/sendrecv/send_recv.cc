// _Send and _Recv: transfer values between partitions, to another task, another device or the client.
#include "absl/strings/str_format.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/rendezvous.h"

namespace millrace {
namespace {

#define MR_SEND_RECV_ATTRS                  \
  Attr("tensor_name: string")               \
      .Attr("send_device: string")          \
      .Attr("send_device_incarnation: int") \
      .Attr("recv_device: string")          \
      .Attr("client_terminated: bool = false")

MILLRACE_OP(_Send)
    .Input("tensor: T")
    .Attr("T: type")
    .MR_SEND_RECV_ATTRS.Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Trait(OpTrait::kSend)
    .Summary("Sends a tensor to another partition or the client.");
MILLRACE_OP(_HostSend)
    .Input("tensor: T")
    .Attr("T: type")
    .MR_SEND_RECV_ATTRS.Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Trait(OpTrait::kSend)
    .Summary("_Send from host memory.");
MILLRACE_OP(_Recv)
    .Output("tensor: tensor_type")
    .Attr("tensor_type: type")
    .MR_SEND_RECV_ATTRS.Stateful()
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Trait(OpTrait::kReceive)
    .Trait(OpTrait::kWaits)
    .Summary("Receives a tensor from another partition or the client.");
MILLRACE_OP(_HostRecv)
    .Output("tensor: tensor_type")
    .Attr("tensor_type: type")
    .MR_SEND_RECV_ATTRS.Stateful()
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Trait(OpTrait::kReceive)
    .Trait(OpTrait::kWaits)
    .Summary("_Recv into host memory.");

// "send device;incarnation in hex;recv device;tensor;frame:iteration", as TensorFlow writes it.
class RendezvousKey {
 public:
  explicit RendezvousKey(KernelInit& init) {
    std::string tensor_name, send_device, recv_device;
    int64_t incarnation = 0;
    init.Attr("tensor_name", &tensor_name);
    init.Attr("send_device", &send_device);
    init.Attr("send_device_incarnation", &incarnation);
    init.Attr("recv_device", &recv_device);
    prefix_ =
        absl::StrFormat("%s;%016x;%s;%s;", send_device, static_cast<uint64_t>(incarnation), recv_device, tensor_name);
    outside_loops_ = prefix_ + "0:0";
    slot_ = static_cast<int>(init.node().AttrOr<int64_t>(kEdgeSlotAttr, -1));
  }

  Status Send(const KernelContext& ctx, RendezvousItem item) const {
    Rendezvous* const rendezvous = ctx.step().rendezvous;
    if (IsInLoop(ctx)) return rendezvous->Send(InLoop(ctx), std::move(item));
    if (slot_ < 0) return rendezvous->Send(outside_loops_, std::move(item));
    return rendezvous->SendSlot(slot_, outside_loops_, std::move(item));
  }
  void Recv(const KernelContext& ctx, Rendezvous::Done done) const {
    Rendezvous* const rendezvous = ctx.step().rendezvous;
    if (IsInLoop(ctx)) return rendezvous->Recv(InLoop(ctx), std::move(done));
    if (slot_ < 0) return rendezvous->Recv(outside_loops_, std::move(done));
    rendezvous->RecvSlot(slot_, outside_loops_, std::move(done));
  }

 private:
  static bool IsInLoop(const KernelContext& ctx) { return ctx.frame_id() != 0 || ctx.iteration() != 0; }
  std::string InLoop(const KernelContext& ctx) const {
    return absl::StrCat(prefix_, ctx.frame_id(), ":", ctx.iteration());
  }

  std::string prefix_;
  std::string outside_loops_;
  int slot_ = -1;
};

Status NoRendezvous() { return Internal("this step has no rendezvous to send to or receive from"); }

class SendKernel : public Kernel {
 public:
  explicit SendKernel(KernelInit& init) : key_(init) {}
  Status Compute(KernelContext& ctx) override {
    if (ctx.step().rendezvous == nullptr) return NoRendezvous();
    return key_.Send(ctx, {ctx.input(0), ctx.is_input_dead()});
  }

 private:
  RendezvousKey key_;
};

class RecvKernel : public AsyncKernel {
 public:
  explicit RecvKernel(KernelInit& init) : key_(init) {}
  void ComputeAsync(KernelContext& ctx, Done done) override {
    if (ctx.step().rendezvous == nullptr) return done(NoRendezvous());
    const DType wanted = ctx.output_type(0);
    key_.Recv(ctx, [&ctx, wanted, done = std::move(done)](StatusOr<RendezvousItem> item) mutable {
      if (!item.ok()) return done(item.status());
      if (!item->is_dead) {
        if (item->tensor.dtype() != wanted) {
          return done(InvalidArgument("received ", DTypeName(item->tensor.dtype()), ", expected ", DTypeName(wanted)));
        }
        ctx.SetOutput(0, std::move(item->tensor));
      }
      done(absl::OkStatus());
    });
  }

 private:
  RendezvousKey key_;
};

MILLRACE_KERNEL(_Send, kCpu, SendKernel);
MILLRACE_KERNEL(_HostSend, kCpu, SendKernel);
MILLRACE_KERNEL(_Recv, kCpu, RecvKernel);
MILLRACE_KERNEL(_HostRecv, kCpu, RecvKernel);

}  // namespace
}  // namespace millrace
