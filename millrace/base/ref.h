// Intrusive, atomic reference counting for objects shared between threads on hot paths.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace millrace {

// Starts with one reference, which the creator owns (pass it to AdoptRef).
class RefCounted {
 public:
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void Ref() const { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() const {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) const_cast<RefCounted*>(this)->Destroy();
  }
  // True if the caller holds the only reference; no other thread can then acquire one.
  bool IsUnique() const { return refs_.load(std::memory_order_acquire) == 1; }

 protected:
  RefCounted() = default;
  virtual ~RefCounted() = default;
  // Called by the last Unref. Override it to return the object to a pool.
  virtual void Destroy() { delete this; }
  void ResetRefs() { refs_.store(1, std::memory_order_relaxed); }

 private:
  mutable std::atomic<int32_t> refs_{1};
};

template <typename T>
class RefPtr {
 public:
  RefPtr() = default;
  RefPtr(std::nullptr_t) {}  // NOLINT: converts like a pointer
  RefPtr(const RefPtr& other) : p_(other.p_) {
    if (p_ != nullptr) p_->Ref();
  }
  RefPtr(RefPtr&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  template <typename U>
  RefPtr(RefPtr<U> other) : p_(other.release()) {}  // NOLINT: converts like a pointer
  RefPtr& operator=(RefPtr other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  ~RefPtr() {
    if (p_ != nullptr) p_->Unref();
  }

  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  T* release() { return std::exchange(p_, nullptr); }
  void reset() { *this = RefPtr(); }
  friend bool operator==(const RefPtr& a, const RefPtr& b) { return a.p_ == b.p_; }

  static RefPtr Adopt(T* p) {
    RefPtr r;
    r.p_ = p;
    return r;
  }

 private:
  T* p_ = nullptr;
};

// Takes over the caller's reference without adding one.
template <typename T>
RefPtr<T> AdoptRef(T* p) {
  return RefPtr<T>::Adopt(p);
}
// Adds a reference.
template <typename T>
RefPtr<T> ShareRef(T* p) {
  if (p != nullptr) p->Ref();
  return RefPtr<T>::Adopt(p);
}
template <typename T, typename... Args>
RefPtr<T> MakeRef(Args&&... args) {
  return AdoptRef(new T(std::forward<Args>(args)...));
}

}  // namespace millrace
