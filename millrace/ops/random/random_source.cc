#include "millrace/ops/random/random_source.h"

#include <random>

#include "millrace/ops/array/int_list.h"

namespace millrace::random {

uint64_t Unpredictable() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

namespace {

// The elements of a seed as bits, signed ones extended.
StatusOr<uint64_t> SeedAt(const Tensor& seed, int i) {
  switch (seed.dtype()) {
    case DType::kInt32:
      return static_cast<uint64_t>(int64_t{seed.data<int32_t>()[i]});
    case DType::kInt64:
      return static_cast<uint64_t>(seed.data<int64_t>()[i]);
    case DType::kUInt32:
      return uint64_t{seed.data<uint32_t>()[i]};
    case DType::kUInt64:
      return seed.data<uint64_t>()[i];
    default:
      return InvalidArgument("a seed cannot be of type ", DTypeName(seed.dtype()));
  }
}

}  // namespace

RandomSource::RandomSource(KernelInit& init, SourceKind kind) : kind_(kind) {
  if (kind != SourceKind::kSeedAttrs) return;
  int64_t seed = 0, seed2 = 0;
  init.Attr("seed", &seed);
  init.Attr("seed2", &seed2);
  // Two zero seeds mean non-deterministic numbers.
  MutexLock lock(&mu_);
  next_ = seed == 0 && seed2 == 0 ? Philox(Unpredictable(), Unpredictable())
                                  : Philox(static_cast<uint64_t>(seed), static_cast<uint64_t>(seed2));
}

int RandomSource::num_inputs() const {
  switch (kind_) {
    case SourceKind::kSeedAttrs:
      return 0;
    case SourceKind::kSeedInput:
      return 1;
    case SourceKind::kKeyInputs:
      return 3;
  }
  return 0;
}

StatusOr<Philox> RandomSource::Take(const KernelContext& ctx, int input, uint64_t groups) {
  switch (kind_) {
    case SourceKind::kSeedInput:
      return StreamFromSeed(ctx.input(input));
    case SourceKind::kKeyInputs:
      return StreamFromKey(ctx.input(input), ctx.input(input + 1), ctx.input(input + 2));
    case SourceKind::kSeedAttrs:
      break;
  }
  MutexLock lock(&mu_);
  const Philox taken = next_;
  next_.Skip(groups);
  return taken;
}

StatusOr<Philox> StreamFromSeed(const Tensor& seed) {
  if (seed.rank() != 1 || seed.dim(0) != 2) {
    return InvalidArgument("seed must have shape [2], not ", seed.shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(const uint64_t first, SeedAt(seed, 0));
  MR_ASSIGN_OR_RETURN(const uint64_t second, SeedAt(seed, 1));
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  // TensorFlow's key for scrambling.
  Philox scrambler({low(first), high(first), low(second), high(second)}, {0x3ec8f720, 0x02461e29});
  const Philox::Group mixed = scrambler();
  return Philox({0, 0, mixed[2], mixed[3]}, {mixed[0], mixed[1]});
}

StatusOr<Philox> StreamFromKey(const Tensor& key, const Tensor& counter, const Tensor& alg) {
  if (alg.num_elements() != 1) {
    return InvalidArgument("alg must be a scalar, but it has shape ", alg.shape().ToString());
  }
  const int32_t algorithm = alg.scalar<int32_t>();
  if (algorithm != kAlgPhilox && algorithm != kAlgAny) {
    return InvalidArgument("Unsupported algorithm id: ", algorithm);
  }
  if (key.rank() != 1 || key.dim(0) != 1) {
    return InvalidArgument("key must have shape [1], not ", key.shape().ToString());
  }
  if (counter.rank() != 1 || counter.dim(0) < 2) {
    return InvalidArgument("counter must be a vector of at least 2 elements, but it has shape ",
                           counter.shape().ToString());
  }
  const uint64_t k = key.scalar<uint64_t>();
  const uint64_t c0 = counter.data<uint64_t>()[0], c1 = counter.data<uint64_t>()[1];
  return Philox({static_cast<uint32_t>(c0), static_cast<uint32_t>(c0 >> 32), static_cast<uint32_t>(c1),
                 static_cast<uint32_t>(c1 >> 32)},
                {static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32)});
}

}  // namespace millrace::random
