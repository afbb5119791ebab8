// How frames and iterations begin and end.
#include "millrace/executor/framed_state.h"

#include <algorithm>

namespace millrace {

FramedRun::FrameState* FramedRun::ChildFrame(int frame, FrameState* parent, Iteration* parent_iteration) {
  if (parent_iteration != nullptr) {
    for (FrameState* child = parent_iteration->children; child != nullptr; child = child->sibling) {
      if (child->frame == frame) return child;
    }
  }
  FrameState* child;
  if (!idle_frames_.empty()) {
    child = idle_frames_.back();
    idle_frames_.pop_back();
  } else {
    frames_.push_back(std::make_unique<FrameState>());
    child = frames_.back().get();
  }
  child->frame = frame;
  child->parent = parent;
  child->parent_iteration = parent_iteration;
  child->enters_left = framed_->frames[frame].num_enters;
  child->alive = 0;
  child->oldest = child->newest = nullptr;
  child->next_number = 0;
  child->id = 0;
  child->sibling = nullptr;
  if (parent_iteration != nullptr) {
    child->id = ChildFrameId(parent->id, parent_iteration->number, framed_->frames[frame].name_hash);
    child->sibling = parent_iteration->children;
    parent_iteration->children = child;
    ++parent_iteration->open_frames;
  }
  return child;
}

FramedRun::Iteration* FramedRun::AddIteration(FrameState* frame, ReadyList* ready) {
  const FramedPlan::Frame& layout = framed_->frames[frame->frame];
  auto& idle = idle_iterations_[frame->frame];
  Iteration* iteration;
  if (!idle.empty()) {
    iteration = idle.back();
    idle.pop_back();
    std::copy(layout.counts.begin(), layout.counts.end(), iteration->counts.begin());
  } else {
    iterations_.push_back(std::make_unique<Iteration>());
    iteration = iterations_.back().get();
    iteration->inputs.resize(layout.num_inputs);
    iteration->counts = layout.counts;
  }
  iteration->number = frame->next_number++;
  iteration->next = nullptr;
  iteration->children = nullptr;
  iteration->outstanding = 0;
  iteration->open_frames = 0;
  for (const auto& fed : layout.fed_inputs) iteration->inputs[fed.input] = args_.feeds[fed.feed];
  frame->dead_exits.clear();
  if (frame->newest != nullptr) {
    frame->newest->next = iteration;
  } else {
    frame->oldest = iteration;
  }
  frame->newest = iteration;
  ++frame->alive;
  for (FrameState::Constant& constant : frame->constants) {
    const FramedPlan::NodeInfo& info = framed_->info[constant.enter];
    for (int e = 0; e < info.num_edges; ++e) {
      const FramedPlan::Edge& edge = framed_->edges[info.first_edge + e];
      Arrive(edge, constant.dead, &constant.value, false, frame, iteration, ready);
    }
  }
  return iteration;
}

void FramedRun::Recycle(Iteration* iteration, int frame) {
  // Nodes that never ran may hold values.
  for (Tensor& t : iteration->inputs) {
    if (t.IsInitialized()) t.Reset();
  }
  idle_iterations_[frame].push_back(iteration);
}

void FramedRun::StartNextIteration(FrameState* frame, ReadyList* ready) {
  const int limit = framed_->frames[frame->frame].parallel_iterations;
  if (frame->waiting.empty() || frame->alive >= limit + 1) return;
  Iteration* iteration = AddIteration(frame, ready);
  // The waiting values belong to this iteration only; values that it produces wait for the next.
  for (auto& [node, value] : frame->waiting) Deliver(node, &value, false, frame, iteration, ready);
  frame->waiting.clear();
}

void FramedRun::CleanUp(FrameState* frame, ReadyList* ready) {
  if (frame->parent == nullptr) return;  // the root frame ends with the run
  while (frame->oldest != nullptr) {
    Iteration* oldest = frame->oldest;
    const bool entered = oldest->number > 0 || frame->enters_left == 0;
    if (!entered || oldest->outstanding > 0 || oldest->open_frames > 0) return;
    // Only the newest iteration could start another one, and it is complete.
    if (oldest->next == nullptr) StartNextIteration(frame, ready);
    frame->oldest = oldest->next;
    if (frame->oldest == nullptr) frame->newest = nullptr;
    --frame->alive;
    Recycle(oldest, frame->frame);
    if (frame->oldest != nullptr) StartNextIteration(frame, ready);
  }
  if (frame->enters_left > 0) return;
  // The frame has ended: exits that were never live are dead in the parent.
  FrameState* const parent = frame->parent;
  Iteration* const parent_iteration = frame->parent_iteration;
  if (!failed_.load(std::memory_order_acquire)) {
    for (const int exit : frame->dead_exits) {
      Tensor none;
      if (framed_->info[exit].is_fetched) KeepFetches(exit, &none, true);
      Deliver(exit, &none, true, parent, parent_iteration, ready);
    }
  }
  frame->dead_exits.clear();
  frame->constants.clear();
  frame->waiting.clear();
  FrameState** link = &parent_iteration->children;
  while (*link != frame) link = &(*link)->sibling;
  *link = frame->sibling;
  idle_frames_.push_back(frame);
  --parent_iteration->open_frames;
  if (parent_iteration->outstanding == 0) CleanUp(parent, ready);
}

// Resets the run to its initial state, keeping its iterations for reuse.
void FramedRun::LetGo() {
  fetched_.clear();
  idle_frames_.clear();
  for (const auto& frame : frames_) {
    for (Iteration* iteration = frame->oldest; iteration != nullptr; iteration = iteration->next) {
      Recycle(iteration, frame->frame);
    }
    frame->oldest = frame->newest = nullptr;
    frame->constants.clear();
    frame->waiting.clear();
    frame->dead_exits.clear();
    idle_frames_.push_back(frame.get());
  }
  root_ = nullptr;
}

}  // namespace millrace
