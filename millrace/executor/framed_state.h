// What a framed run keeps for each frame that is open and each iteration of it.
#pragma once

#include <utility>
#include <vector>

#include "millrace/executor/framed_run.h"

namespace millrace {

struct FramedRun::Iteration {
  int64_t number = 0;
  Iteration* next = nullptr;      // the following one, when it has begun
  FrameState* children = nullptr;  // frames entered from here, a list
  int outstanding = 0;            // nodes that are ready or at work
  int open_frames = 0;
  std::vector<Tensor> inputs;     // of all nodes of the frame
  std::vector<Count> counts;
};

struct FramedRun::FrameState {
  int frame = 0;
  uint64_t id = 0;
  FrameState* parent = nullptr;
  Iteration* parent_iteration = nullptr;
  FrameState* sibling = nullptr;
  int enters_left = 0;
  int alive = 0;                 // iterations from oldest to newest
  Iteration* oldest = nullptr;
  Iteration* newest = nullptr;
  int64_t next_number = 0;
  struct Constant {
    int enter;
    bool dead;
    Tensor value;
  };
  std::vector<Constant> constants;
  // Values for an iteration that may not start yet: as many are at work as the loop allows.
  std::vector<std::pair<int, Tensor>> waiting;
  // Exits that were dead in the newest iteration: dead for good if no other one comes.
  std::vector<int> dead_exits;
};

}  // namespace millrace
