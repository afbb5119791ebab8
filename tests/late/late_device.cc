#include "tests/late/late_device.h"

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/task/local_devices.h"
#include "tests/late/late_kernel.h"
#include "tests/late/late_memory.h"

namespace millrace::late {
namespace {

class LateBuffer : public DeviceBuffer {
 public:
  LateBuffer(LateCard* card, void* data, size_t size) : DeviceBuffer(data, size), card_(card) {}
  Allocator* allocator() const override { return card_; }
  Status CopyFrom(const DeviceBuffer& from, size_t bytes) override {
    return InOrder([to = data_, from = from.data(), bytes]() -> Status {
      std::memcpy(to, from, bytes);
      return absl::OkStatus();
    });
  }
  Status CopyBoxFrom(const DeviceBuffer* from, const void* first, void* to, size_t size, const CopyBox& box) override {
    if (from == nullptr && !card_->stream().IsAtWork()) return Internal("a box is copied from host memory");
    return InOrder([box, at = static_cast<const char*>(first), to = static_cast<char*>(to), size]() -> Status {
      CopyDims(box.dims, at, to, size);
      return absl::OkStatus();
    });
  }
  Status Clear(void* at, size_t bytes) override {
    return InOrder([at, bytes]() -> Status {
      std::memset(at, 0, bytes);
      return absl::OkStatus();
    });
  }

 protected:
  LateCard* const card_;

 private:
  // Now, if this is the thread that does the stream's work.
  Status InOrder(LateStream::Work work) {
    if (card_->stream().IsAtWork()) return work();
    card_->stream().Enqueue(std::move(work));
    return absl::OkStatus();
  }
  static void CopyDims(absl::Span<const CopyBox::Dim> dims, const char* from, char* to, size_t size) {
    if (dims.empty()) {
      std::memcpy(to, from, size);
      return;
    }
    const CopyBox::Dim& outer = dims.front();
    const int64_t bytes = static_cast<int64_t>(size);
    for (int64_t i = 0; i < outer.size; ++i)
      CopyDims(dims.subspan(1), from + i * outer.from * bytes, to + i * outer.to * bytes, size);
  }

  // Work that uses the memory may still wait.
  void Destroy() override {
    card_->stream().Enqueue([data = data_, size = size_]() -> Status {
      LateMemory::Global().Free(data, size);
      return absl::OkStatus();
    });
    delete this;
  }
};

// What work holds: an address, as a kernel on a real card does.
class LateView final : public LateBuffer {
 public:
  using LateBuffer::LateBuffer;

 private:
  void Destroy() override { delete this; }
};

}  // namespace

LateCard* LateCard::Get(int ordinal) {
  static Mutex* const mu = new Mutex;
  static auto* const cards = new std::map<int, LateCard*>;
  MutexLock lock(mu);
  LateCard*& card = (*cards)[ordinal];
  if (card == nullptr) card = new LateCard;
  return card;
}

RefPtr<Buffer> LateCard::Allocate(size_t bytes) {
  void* const data = LateMemory::Global().Allocate(bytes);
  if (data == nullptr) return nullptr;
  return AdoptRef(new LateBuffer(this, data, bytes));
}

Tensor LateCard::ViewOf(const Tensor& tensor) {
  RefPtr<Buffer> view = AdoptRef(new LateView(this, tensor.raw_data(), tensor.TotalBytes()));
  return Tensor(tensor.dtype(), tensor.shape(), std::move(view));
}

LateDevice::LateDevice(std::string name, int ordinal, std::shared_ptr<ThreadPool> pool)
    : Device(std::move(name), "GPU", /*incarnation=*/0x1a7e0000 + ordinal),
      card_(LateCard::Get(ordinal)),
      pool_(std::move(pool)) {}

void LateDevice::CopyFromHost(const Tensor& host, Tensor* here, absl::AnyInvocable<void(Status)> done) {
  if (!IsPlain(host.dtype())) return done(Unimplemented("a late device holds no ", host.dtype()));
  StatusOr<Tensor> made = Tensor::Make(host.dtype(), host.shape(), card_);
  if (!made.ok()) return done(made.status());
  *here = *made;
  // Memory that is ours may be read late; a caller's is the caller's again when this returns.
  const Tensor source = host.buffer() && host.buffer()->writable() ? host : host.Clone();
  card_->stream().Enqueue([source, to = here->raw_data()]() -> Status {
    if (source.TotalBytes() > 0) std::memcpy(to, source.raw_data(), source.TotalBytes());
    return absl::OkStatus();
  });
  done(absl::OkStatus());
}

void LateDevice::CopyToHost(const Tensor& here, Tensor* host, absl::AnyInvocable<void(Status)> done) {
  if (!IsDeviceMemory(here)) return done(Internal("a tensor of ", here.dtype(), " is not on ", name()));
  StatusOr<Tensor> made = Tensor::Make(here.dtype(), here.shape());
  if (!made.ok()) return done(made.status());
  Tensor to = *std::move(made);
  card_->stream().Enqueue([to, from = here.raw_data()]() -> Status {
    if (to.TotalBytes() > 0) std::memcpy(to.raw_data(), from, to.TotalBytes());
    return absl::OkStatus();
  });
  card_->stream().WhenDone([host, to = std::move(to), done = std::move(done)](Status status) mutable {
    if (status.ok()) *host = std::move(to);
    done(std::move(status));
  });
}

void UseLateGpus(int count) {
  RegisterLateKernels();
  SetGpuSource([count](const LocalDeviceOptions& options, const std::shared_ptr<ThreadPool>& pool) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < count && (options.gpu_devices < 0 || i < options.gpu_devices); ++i)
      devices.push_back(std::make_unique<LateDevice>(absl::StrCat(options.task, "/device:GPU:", i), i, pool));
    return devices;
  });
}

}  // namespace millrace::late
