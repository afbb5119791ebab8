#include "millrace/ops/data_flow/tuple_store.h"

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

#include "millrace/base/philox.h"

namespace millrace {
namespace {

class FifoStore : public TupleStore {
 public:
  void Push(Tuple element) override { elements_.push_back(std::move(element)); }
  Tuple Pop() override {
    Tuple element = std::move(elements_.front());
    elements_.pop_front();
    return element;
  }
  void PutBack(std::vector<Tuple> elements) override {
    for (auto it = elements.rbegin(); it != elements.rend(); ++it) elements_.push_front(std::move(*it));
  }
  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }

 private:
  std::deque<Tuple> elements_;
};

class ShuffledStore : public TupleStore {
 public:
  ShuffledStore(uint64_t seed, uint64_t seed2) : random_(seed, seed2) {}

  void Push(Tuple element) override { elements_.push_back(std::move(element)); }
  Tuple Pop() override {
    std::swap(elements_[Draw() % elements_.size()], elements_.back());
    Tuple element = std::move(elements_.back());
    elements_.pop_back();
    return element;
  }
  void PutBack(std::vector<Tuple> elements) override {
    for (auto it = elements.rbegin(); it != elements.rend(); ++it) elements_.push_back(std::move(*it));
  }
  int64_t size() const override { return static_cast<int64_t>(elements_.size()); }

 private:
  // One number of the stream at a time.
  uint32_t Draw() {
    if (used_ == group_.size()) {
      group_ = random_();
      used_ = 0;
    }
    return group_[used_++];
  }

  std::vector<Tuple> elements_;
  Philox random_;
  Philox::Group group_{};
  size_t used_ = std::tuple_size<Philox::Group>::value;
};

// A heap; its order among equal priorities also matches TensorFlow's.
class PriorityStore : public TupleStore {
 public:
  void Push(Tuple element) override {
    const int64_t priority = element[0].scalar<int64_t>();
    heap_.push_back({priority, std::move(element)});
    std::push_heap(heap_.begin(), heap_.end(), After);
  }
  Tuple Pop() override {
    std::pop_heap(heap_.begin(), heap_.end(), After);
    Tuple element = std::move(heap_.back().element);
    heap_.pop_back();
    return element;
  }
  void PutBack(std::vector<Tuple> elements) override {
    for (Tuple& element : elements) Push(std::move(element));
  }
  int64_t size() const override { return static_cast<int64_t>(heap_.size()); }

 private:
  struct Entry {
    int64_t priority;
    Tuple element;
  };
  static bool After(const Entry& a, const Entry& b) { return a.priority > b.priority; }

  std::vector<Entry> heap_;
};

}  // namespace

std::unique_ptr<TupleStore> TupleStore::Fifo() { return std::make_unique<FifoStore>(); }

std::unique_ptr<TupleStore> TupleStore::Shuffled(int64_t seed, int64_t seed2) {
  if (seed == 0 && seed2 == 0) {
    std::random_device device;
    seed = static_cast<int64_t>(device());
    seed2 = static_cast<int64_t>(device());
  }
  return std::make_unique<ShuffledStore>(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2));
}

std::unique_ptr<TupleStore> TupleStore::ByPriority() { return std::make_unique<PriorityStore>(); }

}  // namespace millrace
