#include "bench/input.h"

#include <random>

#include "bench/measure.h"
#include "millrace/data/cifar_batches.h"

namespace millrace::bench {

void CifarInput(const Flags& flags) {
  constexpr int kExamples = 50000, kBatch = 128;
  CifarImages examples{.images = Tensor(DType::kUInt8, Shape({kExamples, 32, 32, 3})),
                       .labels = RandomLabels(kExamples, 10)};
  std::mt19937 random(1);
  for (uint8_t& pixel : examples.images.flat<uint8_t>()) pixel = static_cast<uint8_t>(random());
  const Dataset batches =
      Check(CifarTrainingBatches(examples, {.batch_size = kBatch, .threads = flags.threads})).Prefetch(2);
  const std::unique_ptr<DatasetIterator> it = Check(batches.MakeIterator());
  std::vector<Tensor> batch;
  Emit(flags, "cifar_input", "images/s", kBatch * Rate(flags.seconds, [&] { Check(it->Next(&batch)); }));
}

}  // namespace millrace::bench
