#include "tests/late/late_device.h"

#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/task/local_devices.h"
#include "tests/late/late_kernel.h"
#include "tests/late/late_memory.h"

namespace millrace::late {
namespace {

constexpr int64_t kCardMemory = int64_t{16} << 30;

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
    MemoryHolders::Global().Remove(data_, size_);
    card_->OnFreed(size_);
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

LateCard::LateCard(int number, const GpuPlace& place)
    : name_(absl::StrCat("GPU:", number, " (late)")),
      budget_(MakeRef<MemoryBudget>(name_, place.memory_limit, nullptr)) {}

LateCard* LateCard::Get(int number, const GpuPlace& place) {
  static Mutex* const mu = new Mutex;
  static auto* const cards = new std::vector<std::tuple<int, GpuPlace, LateCard*>>;
  MutexLock lock(mu);
  for (const auto& [of, at, card] : *cards) {
    if (of == number && at == place) return card;
  }
  cards->emplace_back(number, place, new LateCard(number, place));
  return std::get<2>(cards->back());
}

void LateCard::Fail(const Status& why) {
  stream_.Fail(why);
  health_.Fail(why);
}

RefPtr<Buffer> LateCard::Allocate(size_t bytes) {
  if (!budget_->Charge(bytes)) return nullptr;
  void* const data = LateMemory::Global().Allocate(bytes);
  if (data == nullptr) {
    budget_->Release(bytes);
    return nullptr;
  }
  MemoryHolders::Global().Add(this, data, bytes);
  return AdoptRef(new LateBuffer(this, data, bytes));
}

Tensor LateCard::ViewOf(const Tensor& tensor) {
  RefPtr<Buffer> view = AdoptRef(new LateView(this, tensor.raw_data(), tensor.TotalBytes()));
  return Tensor(tensor.dtype(), tensor.shape(), std::move(view));
}

LateDevice::LateDevice(std::string name, LateCard* card, const GpuPlace& place, std::shared_ptr<ThreadPool> pool)
    : Device(std::move(name), "GPU", /*incarnation=*/reinterpret_cast<uintptr_t>(card)),
      card_(card),
      place_(place),
      pool_(std::move(pool)) {}

Device::MemoryUse LateDevice::memory_use() const {
  return {.limit = place_.memory_limit > 0 ? place_.memory_limit : kCardMemory,
          .in_use = static_cast<int64_t>(card_->bytes_in_use())};
}

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
  auto layout = std::make_shared<GpuLayout>();
  SetGpuSource([count, layout](
                   const LocalDeviceOptions& options,
                   const std::shared_ptr<ThreadPool>& pool) -> StatusOr<std::vector<std::unique_ptr<Device>>> {
    const std::vector<GpuCard> cards(count, {.model = "late", .memory = kCardMemory, .greatest_priority = -2});
    MR_ASSIGN_OR_RETURN(const std::vector<GpuPlace> places, layout->Agree(options.gpus, cards));
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < static_cast<int>(places.size()) && (options.gpu_devices < 0 || i < options.gpu_devices); ++i) {
      devices.push_back(std::make_unique<LateDevice>(absl::StrCat(options.task, "/device:GPU:", i),
                                                     LateCard::Get(i, places[i]), places[i], pool));
    }
    return devices;
  });
}

}  // namespace millrace::late
