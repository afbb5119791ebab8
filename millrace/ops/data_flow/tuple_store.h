// The container of a queue's elements, which decides which one comes out next.
#pragma once

#include <memory>
#include <vector>

#include "millrace/tensor/tensor.h"

namespace millrace {

// Not thread-safe.
class TupleStore {
 public:
  using Tuple = std::vector<Tensor>;

  virtual ~TupleStore() = default;
  virtual void Push(Tuple element) = 0;
  // Requires a non-empty store.
  virtual Tuple Pop() = 0;
  // Undoes pops: `elements` are in the order in which they were popped.
  virtual void PutBack(std::vector<Tuple> elements) = 0;
  virtual int64_t size() const = 0;

  // First in, first out.
  static std::unique_ptr<TupleStore> Fifo();
  // In random order, as TensorFlow draws it for these seeds; if both are 0, the order is non-deterministic.
  static std::unique_ptr<TupleStore> Shuffled(int64_t seed, int64_t seed2);
  // Smallest first component (an int64 scalar) first.
  static std::unique_ptr<TupleStore> ByPriority();
};

}  // namespace millrace
