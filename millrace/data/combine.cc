// Zip, Concatenate and Interleave.
#include <algorithm>
#include <utility>

#include "millrace/data/stage.h"

namespace millrace {
namespace data_internal {
namespace {

class ZipStage : public Stage {
 public:
  ZipStage(std::vector<SourcePtr> inputs, uint64_t epoch) : inputs_(std::move(inputs)) {
    for (const SourcePtr& input : inputs_) stages_.push_back(input->Start(epoch));
  }
  StatusOr<bool> Next(Element* element) override {
    Element all;
    for (size_t i = 0; i < stages_.size(); ++i) {
      Element part;
      MR_ASSIGN_OR_RETURN(const bool more, stages_[i]->Next(&part));
      if (!more) return false;
      Materialize(inputs_[i]->table(), &part);
      for (Tensor& t : part.tensors) all.tensors.push_back(std::move(t));
    }
    *element = std::move(all);
    return true;
  }

 private:
  const std::vector<SourcePtr> inputs_;
  std::vector<std::unique_ptr<Stage>> stages_;
};

class ZipSource : public Source {
 public:
  explicit ZipSource(std::vector<SourcePtr> inputs) : inputs_(std::move(inputs)) {
    bool endless = true, waits = false;
    int64_t shortest = kInfiniteCardinality;
    for (const SourcePtr& input : inputs_) {
      endless &= input->endless();
      const int64_t n = input->cardinality();
      if (n == kUnknownCardinality || shortest == kUnknownCardinality) {
        shortest = kUnknownCardinality;
      } else if (n != kInfiniteCardinality) {
        shortest = shortest == kInfiniteCardinality ? n : std::min(shortest, n);
      }
      waits |= input->MayWait();
    }
    set_cardinality(shortest);
    set_endless(endless);
    set_waits(waits);
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override { return std::make_unique<ZipStage>(inputs_, epoch); }

 private:
  const std::vector<SourcePtr> inputs_;
};

class ConcatenateStage : public Stage {
 public:
  ConcatenateStage(SourcePtr first, SourcePtr second, uint64_t epoch)
      : current_(std::move(first)), second_(std::move(second)), epoch_(epoch), stage_(current_->Start(epoch)) {}
  StatusOr<bool> Next(Element* element) override {
    for (;;) {
      MR_ASSIGN_OR_RETURN(const bool more, stage_->Next(element));
      if (more) {
        Materialize(current_->table(), element);
        return true;
      }
      if (second_ == nullptr) return false;
      current_ = std::move(second_);
      second_ = nullptr;
      stage_ = current_->Start(epoch_);
      *element = Element();
    }
  }

 private:
  SourcePtr current_, second_;
  const uint64_t epoch_;
  std::unique_ptr<Stage> stage_;
};

class ConcatenateSource : public Source {
 public:
  ConcatenateSource(SourcePtr first, SourcePtr second) : first_(std::move(first)), second_(std::move(second)) {
    set_endless(first_->endless() || second_->endless());
    const int64_t a = first_->cardinality(), b = second_->cardinality();
    if (a == kInfiniteCardinality || b == kInfiniteCardinality) {
      set_cardinality(kInfiniteCardinality);
    } else if (a >= 0 && b >= 0) {
      set_cardinality(a + b);
    }
    set_waits(first_->MayWait() || second_->MayWait());
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<ConcatenateStage>(first_, second_, epoch);
  }

 private:
  const SourcePtr first_, second_;
};

// A cycle of `cycle_length` slots, each with an open inner dataset or free. A slot whose dataset has ended gets the
// next one on its next turn.
class InterleaveStage : public Stage {
 public:
  InterleaveStage(SourcePtr input, FlatMapFn fn, InterleaveOptions options, uint64_t epoch)
      : input_(std::move(input)), fn_(std::move(fn)), options_(options), epoch_(epoch), stage_(input_->Start(epoch)) {}

  StatusOr<bool> Next(Element* element) override {
    while (stage_ != nullptr || open_ > 0) {
      // Slots are created with their first dataset, so that a huge cycle_length costs nothing.
      std::unique_ptr<DatasetIterator>* place = at_ < places_.size() ? &places_[at_] : nullptr;
      if (place != nullptr && *place != nullptr) {
        *element = Element();
        MR_ASSIGN_OR_RETURN(const bool more, (*place)->Next(&element->tensors));
        if (more) {
          if (++in_block_ == options_.block_length) Advance();
          return true;
        }
        place->reset();
        --open_;
        Advance();
      } else if (stage_ != nullptr) {
        MR_RETURN_IF_ERROR(Open());
      } else {
        Advance();
      }
    }
    return false;
  }

 private:
  void Advance() {
    in_block_ = 0;
    at_ = (at_ + 1) % static_cast<size_t>(options_.cycle_length);
    if (stage_ == nullptr && at_ >= places_.size()) at_ = 0;
  }

  Status Open() {
    Element next;
    MR_ASSIGN_OR_RETURN(const bool more, stage_->Next(&next));
    if (!more) {
      stage_ = nullptr;
      return absl::OkStatus();
    }
    Materialize(input_->table(), &next);
    MR_ASSIGN_OR_RETURN(const Dataset inner, fn_(next.tensors));
    MR_ASSIGN_OR_RETURN(std::unique_ptr<DatasetIterator> walk, inner.MakeIterator(epoch_));
    if (at_ >= places_.size()) places_.resize(at_ + 1);
    places_[at_] = std::move(walk);
    ++open_;
    return absl::OkStatus();
  }

  const SourcePtr input_;
  const FlatMapFn fn_;
  const InterleaveOptions options_;
  const uint64_t epoch_;
  std::unique_ptr<Stage> stage_;  // null once the input has ended
  std::vector<std::unique_ptr<DatasetIterator>> places_;
  size_t at_ = 0;
  int64_t in_block_ = 0;
  int64_t open_ = 0;
};

class InterleaveSource : public Source {
 public:
  InterleaveSource(SourcePtr input, FlatMapFn fn, InterleaveOptions options)
      : Source(*input, NewElements()), input_(std::move(input)), fn_(std::move(fn)), options_(options) {
    set_waits(true);  // the inner datasets are not known yet
    set_cardinality(kUnknownCardinality);
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<InterleaveStage>(input_, fn_, options_, epoch);
  }

 private:
  const SourcePtr input_;
  const FlatMapFn fn_;
  const InterleaveOptions options_;
};

}  // namespace

SourcePtr NewZip(std::vector<SourcePtr> inputs) { return std::make_shared<ZipSource>(std::move(inputs)); }
SourcePtr NewConcatenate(SourcePtr first, SourcePtr second) {
  return std::make_shared<ConcatenateSource>(std::move(first), std::move(second));
}
SourcePtr NewInterleave(SourcePtr input, FlatMapFn fn, InterleaveOptions options) {
  return std::make_shared<InterleaveSource>(std::move(input), std::move(fn), options);
}

}  // namespace data_internal
}  // namespace millrace
