// The source of a random op's stream of numbers.
#pragma once

#include "millrace/base/mutex.h"
#include "millrace/base/philox.h"
#include "millrace/runtime/kernel.h"

namespace millrace::random {

enum class SourceKind {
  kSeedAttrs,  // the attrs seed and seed2; each execution continues where the last one ended
  kSeedInput,  // an input of two integers
  kKeyInputs,  // inputs key, counter, alg
};

// Thread-safe.
class RandomSource {
 public:
  RandomSource(KernelInit& init, SourceKind kind);

  // A stream of `groups` groups of numbers that no other execution of this node gets. `input` is the index of the
  // source's first input.
  StatusOr<Philox> Take(const KernelContext& ctx, int input, uint64_t groups);

  // The number of inputs of the source.
  int num_inputs() const;

 private:
  const SourceKind kind_;
  Mutex mu_;
  Philox next_ ABSL_GUARDED_BY(mu_);
};

// The stream for a pair of seeds, scrambled so that similar seeds give unrelated streams.
StatusOr<Philox> StreamFromSeed(const Tensor& seed);
// The stream at `counter` under `key`; `alg` must be Philox or "any".
StatusOr<Philox> StreamFromKey(const Tensor& key, const Tensor& counter, const Tensor& alg);

// A seed for numbers that need not be repeatable.
uint64_t Unpredictable();

// TensorFlow's numbers of the algorithms.
inline constexpr int32_t kAlgPhilox = 1;
inline constexpr int32_t kAlgAny = 3;

}  // namespace millrace::random
