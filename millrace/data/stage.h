// What pipelines are made of: a Source describes, a Stage walks.
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

// An element on its way. As long as it is one row of the tensors the pipeline started from it is just
// the row's number: shuffling and sharding move numbers, and Batch copies each row once.
struct Element {
  int64_t row = -1;  // below 0: see `tensors`
  std::vector<Tensor> tensors;
};

// The tensors that row numbers refer to.
using RowTable = std::vector<Tensor>;

// One walk. One thread at a time.
class Stage {
 public:
  virtual ~Stage() = default;
  // False at the end.
  virtual StatusOr<bool> Next(Element* element) = 0;
  // For a stage that waits for another thread: whether Next would not, now.
  virtual bool Ready() const { return true; }
};

// Immutable; shared by the datasets that continue it and the stages that walk it.
class Source : public std::enable_shared_from_this<Source> {
 public:
  virtual ~Source() = default;
  virtual std::unique_ptr<Stage> Start(uint64_t epoch) const = 0;
  // What rows of this source's elements refer to; null when they are all tensors.
  const RowTable* table() const { return table_.get(); }
  // True when a walk is known to have no end.
  bool endless() const { return endless_; }
  // True when a walk may wait for another thread in other stages than its last.
  bool waits() const { return waits_; }
  // True when it may in any.
  bool MayWait() const { return waits_ || waits_itself(); }

 protected:
  explicit Source(std::shared_ptr<const RowTable> table = nullptr) : table_(std::move(table)) {}
  // Elements pass through unchanged, so rows keep their meaning.
  struct SameRows {};
  Source(const Source& input, SameRows) : table_(input.table_), endless_(input.endless_), waits_(input.MayWait()) {}
  struct NewElements {};
  Source(const Source& input, NewElements)
      : endless_(input.endless_), waits_(input.MayWait()) {}
  // True for a source whose own stage waits for another thread; its Ready says when.
  virtual bool waits_itself() const { return false; }

  void set_endless(bool endless) { endless_ = endless; }
  void set_waits(bool waits) { waits_ = waits; }

 private:
  std::shared_ptr<const RowTable> table_;
  bool endless_ = false;
  bool waits_ = false;
};

using SourcePtr = std::shared_ptr<const Source>;

// Turns a row number into tensors, which share the table's memory.
void Materialize(const RowTable* table, Element* element);
// Copies `n` elements' worth of memory, of type `dtype`, from `from` to `to`.
void CopyElements(DType dtype, const void* from, void* to, int64_t n);

// One file each.
StatusOr<SourcePtr> NewRowSource(std::vector<Tensor> tensors);
SourcePtr NewGeneratorSource(std::function<Generator(uint64_t epoch)> start);
SourcePtr NewShuffle(SourcePtr input, ShuffleOptions options);
SourcePtr NewBatch(SourcePtr input, int64_t n, bool drop_remainder);
SourcePtr NewRepeat(SourcePtr input, int64_t count);
SourcePtr NewShard(SourcePtr input, int64_t n, int64_t i);
SourcePtr NewTake(SourcePtr input, int64_t n);
SourcePtr NewSkip(SourcePtr input, int64_t n);
SourcePtr NewMap(SourcePtr input, MapFn fn, bool waits);
SourcePtr NewParallelMap(SourcePtr input, MapFn fn, int64_t calls);
SourcePtr NewFilter(SourcePtr input, FilterFn keep, bool waits);
SourcePtr NewInterleave(SourcePtr input, FlatMapFn fn, InterleaveOptions options);
SourcePtr NewZip(std::vector<SourcePtr> inputs);
SourcePtr NewConcatenate(SourcePtr first, SourcePtr second);
SourcePtr NewPaddedBatch(SourcePtr input, PaddedBatchOptions options);
SourcePtr NewCache(SourcePtr input);
SourcePtr NewPrefetch(SourcePtr input, int64_t n);

}  // namespace data_internal
}  // namespace millrace
