// The internals of pipelines: a Source describes a pipeline, a Stage iterates over it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/data/dataset.h"
#include "millrace/tensor/tensor.h"

namespace millrace {
namespace data_internal {

// An element in the pipeline. As long as it is an unmodified row of the source tensors it is represented by its row
// number, so that shuffling and sharding move only numbers and Batch copies each row once.
struct Element {
  int64_t row = -1;  // if negative, see `tensors`
  std::vector<Tensor> tensors;
};

// The tensors that row numbers refer to.
using RowTable = std::vector<Tensor>;

// One pass. Not thread-safe.
class Stage {
 public:
  virtual ~Stage() = default;
  // Returns false at the end.
  virtual StatusOr<bool> Next(Element* element) = 0;
  // False if Next would have to wait for another thread now.
  virtual bool Ready() const { return true; }
};

// Immutable; shared by the datasets that extend it and the stages that iterate over it.
class Source : public std::enable_shared_from_this<Source> {
 public:
  virtual ~Source() = default;
  virtual std::unique_ptr<Stage> Start(uint64_t epoch) const = 0;
  // The table that the row numbers of this source's elements refer to; null if it has no row numbers.
  const RowTable* table() const { return table_.get(); }
  // The number of elements of a pass, kInfiniteCardinality or kUnknownCardinality.
  int64_t cardinality() const { return cardinality_; }
  // True if a pass is known to be infinite.
  bool endless() const { return endless_; }
  // True if a pass may wait for another thread in a stage other than the last.
  bool waits() const { return waits_; }
  // True if it may wait in any stage.
  bool MayWait() const { return waits_ || waits_itself(); }

 protected:
  explicit Source(std::shared_ptr<const RowTable> table = nullptr) : table_(std::move(table)) {}
  // Tag: elements pass through unchanged, so row numbers remain valid.
  struct SameRows {};
  Source(const Source& input, SameRows) : Source(input, NewElements()) { table_ = input.table_; }
  // With both tags there are as many elements as in `input`, unless set_cardinality says otherwise.
  struct NewElements {};
  Source(const Source& input, NewElements)
      : cardinality_(input.cardinality_), endless_(input.endless_), waits_(input.MayWait()) {}
  // True for a source whose own stage may wait for another thread, as reported by its Ready.
  virtual bool waits_itself() const { return false; }

  void set_cardinality(int64_t cardinality) { cardinality_ = cardinality; }
  void set_endless(bool endless) { endless_ = endless; }
  void set_waits(bool waits) { waits_ = waits; }

 private:
  std::shared_ptr<const RowTable> table_;
  int64_t cardinality_ = kUnknownCardinality;
  bool endless_ = false;
  bool waits_ = false;
};

using SourcePtr = std::shared_ptr<const Source>;

// The number of batches of n elements.
inline int64_t BatchCount(int64_t cardinality, int64_t n, bool drop_remainder) {
  if (cardinality < 0) return cardinality;
  return cardinality / n + (!drop_remainder && cardinality % n != 0 ? 1 : 0);
}

// Replaces a row number by tensors that share the table's memory.
void Materialize(const RowTable* table, Element* element);

// Factories, defined in one file per family.
StatusOr<SourcePtr> NewRowSource(std::vector<Tensor> tensors);
SourcePtr NewGeneratorSource(std::function<Generator(uint64_t epoch)> start, int64_t cardinality);
SourcePtr NewShuffle(SourcePtr input, ShuffleOptions options);
SourcePtr NewBatch(SourcePtr input, int64_t n, bool drop_remainder);
SourcePtr NewRepeat(SourcePtr input, int64_t count);
SourcePtr NewShard(SourcePtr input, int64_t n, int64_t i);
SourcePtr NewTake(SourcePtr input, int64_t n);
SourcePtr NewSkip(SourcePtr input, int64_t n);
SourcePtr NewMap(SourcePtr input, ElementFn fn, bool waits);
SourcePtr NewParallelMap(SourcePtr input, ElementFn fn, int64_t calls);
SourcePtr NewFilter(SourcePtr input, FilterFn keep, bool waits);
SourcePtr NewInterleave(SourcePtr input, FlatMapFn fn, InterleaveOptions options);
SourcePtr NewZip(std::vector<SourcePtr> inputs);
SourcePtr NewConcatenate(SourcePtr first, SourcePtr second);
SourcePtr NewPaddedBatch(SourcePtr input, PaddedBatchOptions options);
SourcePtr NewCache(SourcePtr input);
SourcePtr NewPrefetch(SourcePtr input, int64_t n);
SourcePtr NewWindow(SourcePtr input, WindowOptions options);

// The elements stacked along a new first dimension. INVALID_ARGUMENT if they differ in type or shape.
StatusOr<std::vector<Tensor>> StackElements(const std::vector<std::vector<Tensor>>& elements);

}  // namespace data_internal
}  // namespace millrace
