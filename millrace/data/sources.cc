// Sources: tensors in memory, and generator functions.
#include <utility>

#include "millrace/data/stage.h"

namespace millrace {
namespace data_internal {
namespace {

class RowStage : public Stage {
 public:
  explicit RowStage(int64_t count) : count_(count) {}
  StatusOr<bool> Next(Element* element) override {
    if (next_ == count_) return false;
    element->row = next_++;
    return true;
  }

 private:
  const int64_t count_;
  int64_t next_ = 0;
};

class RowSource : public Source {
 public:
  explicit RowSource(std::shared_ptr<const RowTable> rows) : Source(std::move(rows)) {
    set_cardinality(table()->front().dim(0));
  }
  std::unique_ptr<Stage> Start(uint64_t) const override { return std::make_unique<RowStage>(table()->front().dim(0)); }
};

class GeneratorStage : public Stage {
 public:
  explicit GeneratorStage(Generator next) : next_(std::move(next)) {}
  StatusOr<bool> Next(Element* element) override {
    if (next_ == nullptr) return false;
    element->row = -1;
    element->tensors.clear();
    return next_(&element->tensors);
  }

 private:
  Generator next_;
};

class GeneratorSource : public Source {
 public:
  GeneratorSource(std::function<Generator(uint64_t)> start, int64_t cardinality) : start_(std::move(start)) {
    set_cardinality(cardinality);
    set_endless(cardinality == kInfiniteCardinality);
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<GeneratorStage>(start_(epoch));
  }

 private:
  const std::function<Generator(uint64_t)> start_;
};

}  // namespace

void Materialize(const RowTable* table, Element* element) {
  if (element->row < 0) return;
  element->tensors.clear();
  for (const Tensor& tensor : *table) element->tensors.push_back(tensor.Row(element->row));
  element->row = -1;
}

StatusOr<SourcePtr> NewRowSource(std::vector<Tensor> tensors) {
  if (tensors.empty()) return InvalidArgument("a dataset needs at least one tensor");
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].IsInitialized() || tensors[i].rank() == 0) {
      return InvalidArgument("tensor ", i, " of a dataset has no rows: ", tensors[i].DebugString());
    }
    if (tensors[i].dim(0) != tensors[0].dim(0)) {
      return InvalidArgument("tensors of a dataset have ", tensors[0].dim(0), " and ", tensors[i].dim(0),
                             " rows (tensors 0 and ", i, ")");
    }
  }
  return std::make_shared<RowSource>(std::make_shared<RowTable>(std::move(tensors)));
}

SourcePtr NewGeneratorSource(std::function<Generator(uint64_t epoch)> start, int64_t cardinality) {
  return std::make_shared<GeneratorSource>(std::move(start), cardinality);
}

}  // namespace data_internal
}  // namespace millrace
