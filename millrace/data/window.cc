// Window: stacks elements that lie beside each other; windows may overlap.
#include <utility>

#include "millrace/data/stage.h"
#include "millrace/data/window_pass.h"

namespace millrace {
namespace data_internal {
namespace {

class WindowStage : public Stage {
 public:
  WindowStage(SourcePtr input, WindowOptions options, uint64_t epoch)
      : input_(std::move(input)),
        stage_(input_->Start(epoch)),
        pass_([this](std::vector<Tensor>* tensors) { return Take(tensors); }, options) {}

  StatusOr<bool> Next(Element* element) override {
    MR_ASSIGN_OR_RETURN(const bool more, pass_.Next(&window_));
    if (!more) return false;
    element->row = -1;
    MR_ASSIGN_OR_RETURN(element->tensors, StackElements(window_));
    return true;
  }

 private:
  StatusOr<bool> Take(std::vector<Tensor>* tensors) {
    Element next;
    MR_ASSIGN_OR_RETURN(const bool more, stage_->Next(&next));
    if (!more) return false;
    Materialize(input_->table(), &next);
    *tensors = std::move(next.tensors);
    return true;
  }

  const SourcePtr input_;
  const std::unique_ptr<Stage> stage_;
  WindowPass pass_;
  std::vector<std::vector<Tensor>> window_;
};

class WindowSource : public Source {
 public:
  WindowSource(SourcePtr input, WindowOptions options)
      : Source(*input, NewElements()), input_(std::move(input)), options_(options) {
    if (cardinality() < 0) return;
    const int64_t n = cardinality(), reach = 1 + options_.stride * (options_.size - 1);
    const int64_t starts = options_.drop_remainder ? n - reach + 1 : n;
    set_cardinality(starts <= 0 ? 0 : (starts - 1) / options_.shift + 1);
  }
  std::unique_ptr<Stage> Start(uint64_t epoch) const override {
    return std::make_unique<WindowStage>(input_, options_, epoch);
  }

 private:
  const SourcePtr input_;
  const WindowOptions options_;
};

}  // namespace

SourcePtr NewWindow(SourcePtr input, WindowOptions options) {
  return std::make_shared<WindowSource>(std::move(input), options);
}

}  // namespace data_internal
}  // namespace millrace
