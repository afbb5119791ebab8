// The state of a framed run for each open frame and each of its iterations.
#pragma once

#include <utility>
#include <vector>

#include "millrace/executor/framed_run.h"

namespace millrace {

struct FramedRun::Iteration {
  int64_t number = 0;
  Iteration* next = nullptr;       // the next iteration, if it has begun
  FrameState* children = nullptr;  // linked list of the frames entered from here
  int outstanding = 0;             // nodes that are ready or running
  int open_frames = 0;
  std::vector<Tensor> inputs;  // of all nodes of the frame
  std::vector<Count> counts;
};

struct FramedRun::FrameState {
  int frame = 0;
  uint64_t id = 0;
  FrameState* parent = nullptr;
  Iteration* parent_iteration = nullptr;
  FrameState* sibling = nullptr;
  int enters_left = 0;
  int alive = 0;  // the number of iterations from oldest to newest
  Iteration* oldest = nullptr;
  Iteration* newest = nullptr;
  int64_t next_number = 0;
  struct Constant {
    int enter;
    bool dead;
    Tensor value;
  };
  std::vector<Constant> constants;
  // Values for the next iteration, which may not start yet because parallel_iterations are running.
  std::vector<std::pair<int, Tensor>> waiting;
  // Exits that were dead in the newest iteration; their outputs are dead if no further iteration starts.
  std::vector<int> dead_exits;
};

}  // namespace millrace
