#include "millrace/ops/kernels/onednn.h"

#include <omp.h>

#include <cstdlib>

#include "millrace/base/signal_stack.h"

namespace millrace::onednn {
namespace {

dnnl_stream_t ThreadStream() {
  thread_local const dnnl::stream stream(CpuEngine());
  return stream.get();
}

}  // namespace

SingleThreaded::SingleThreaded() : saved_(omp_get_max_threads()) {
  if (saved_ != 1) omp_set_num_threads(1);
  HaveSignalStack();  // a signal, such as a notice of preemption, may come in the middle of a product
}

SingleThreaded::~SingleThreaded() {
  if (saved_ != 1) omp_set_num_threads(saved_);
}

const dnnl::engine& CpuEngine() {
  static const dnnl::engine* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Status Guarded(absl::string_view what, absl::FunctionRef<void()> make) {
  SingleThreaded one;
  try {
    make();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) return ResourceExhausted(what, ": oneDNN: ", e.what());
    if (e.status == dnnl_unimplemented) return Unimplemented(what, ": oneDNN: ", e.what());
    return Internal(what, ": oneDNN: ", e.what());
  }
  return absl::OkStatus();
}

// What one execution needs besides the primitive: memory handles and scratch space.
struct Primitive::Handles {
  std::array<dnnl::memory, kMaxArgs> memories;
  dnnl::memory scratch_memory;
  std::array<dnnl_exec_arg_t, kMaxArgs + 1> exec;
  void* scratch = nullptr;
  ~Handles() { std::free(scratch); }
};

Primitive::Primitive(dnnl::primitive primitive, std::vector<Arg> args, const dnnl::memory::desc& scratchpad)
    : primitive_(std::move(primitive)), args_(std::move(args)), scratchpad_(scratchpad) {
  MR_CHECK(args_.size() <= kMaxArgs);
}

Primitive::~Primitive() {
  for (auto& slot : free_) delete slot.load();
}

Primitive::Handles* Primitive::Borrow() const {
  for (auto& slot : free_) {
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    if (Handles* handles = slot.exchange(nullptr, std::memory_order_acquire)) return handles;
  }
  auto handles = std::make_unique<Handles>();
  for (size_t i = 0; i < args_.size(); ++i) {
    handles->memories[i] = dnnl::memory(args_[i].desc, CpuEngine(), nullptr);
    handles->exec[i] = {args_[i].id, handles->memories[i].get()};
  }
  if (const size_t bytes = scratchpad_.get_size(); bytes > 0) {
    handles->scratch = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (handles->scratch == nullptr) throw dnnl::error(dnnl_out_of_memory, "no scratch memory");
  }
  handles->scratch_memory = dnnl::memory(scratchpad_, CpuEngine(), handles->scratch);
  handles->exec[args_.size()] = {DNNL_ARG_SCRATCHPAD, handles->scratch_memory.get()};
  return handles.release();
}

void Primitive::Return(Handles* handles) const {
  for (auto& slot : free_) {
    Handles* empty = nullptr;
    if (slot.load(std::memory_order_relaxed) == nullptr &&
        slot.compare_exchange_strong(empty, handles, std::memory_order_release)) {
      return;
    }
  }
  delete handles;
}

Status Primitive::Run(absl::Span<void* const> data) const {
  MR_CHECK(data.size() == args_.size());
  SingleThreaded one;
  Handles* handles = nullptr;
  try {
    handles = Borrow();
  } catch (const dnnl::error& e) {
    return ResourceExhausted("oneDNN: ", e.what());
  }
  dnnl_status_t status = dnnl_success;
  for (size_t i = 0; i < data.size() && status == dnnl_success; ++i) {
    status = dnnl_memory_set_data_handle(handles->memories[i].get(), data[i]);
  }
  if (status == dnnl_success) {
    status = dnnl_primitive_execute(primitive_.get(), ThreadStream(), static_cast<int>(args_.size()) + 1,
                                    handles->exec.data());
  }
  Return(handles);
  if (status == dnnl_success) return absl::OkStatus();
  if (status == dnnl_out_of_memory) return ResourceExhausted("oneDNN: out of memory");
  return Internal("oneDNN failed with status ", static_cast<int>(status));
}

void FirstError::Update(const Status& status) {
  if (status.ok()) return;
  MutexLock lock(&mu_);
  if (status_.ok()) status_ = status;
  failed_.store(true, std::memory_order_relaxed);
}

Status FirstError::status() const {
  if (ok()) return absl::OkStatus();
  MutexLock lock(&mu_);
  return status_;
}

}  // namespace millrace::onednn
