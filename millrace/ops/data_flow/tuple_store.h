// What a queue keeps its elements in: it decides which one comes out next.
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
  // Only when there is one.
  virtual Tuple Pop() = 0;
  // Elements that were popped, in that order, and are to be as if they had not been.
  virtual void PutBack(std::vector<Tuple> elements) = 0;
  virtual int64_t size() const = 0;

  // First in, first out.
  static std::unique_ptr<TupleStore> Fifo();
  // At random, as TensorFlow draws from the stream of these seeds; both 0 means other ones each
  // time.
  static std::unique_ptr<TupleStore> Shuffled(int64_t seed, int64_t seed2);
  // The least first component (an int64 scalar) first.
  static std::unique_ptr<TupleStore> ByPriority();
};

}  // namespace millrace
