// The exchanges of buffers between the members of a group, with TensorFlow's keys and pieces.
#pragma once

#include <memory>

#include "millrace/base/status.h"
#include "millrace/cluster/collectives/collective_run.h"

namespace millrace {

// Each begins an exchange, which ends the run when it is complete. An error is returned before anything is exchanged.

// Reduces, scatters or gathers around a ring: pieces of the tensor go around it independently of each other.
Status StartRing(std::shared_ptr<CollectiveRun> run);
// Sends the source's tensor down a tree of tasks and then one of the devices of each task.
Status StartBroadcast(std::shared_ptr<CollectiveRun> run);
// Sends row i of the input to member i.
Status StartAllToAll(std::shared_ptr<CollectiveRun> run);

// The bytes of a tensor's elements [begin, begin + count), which keep its memory alive.
net::Bytes ElementBytes(const Tensor& tensor, int64_t begin, int64_t count);
// Copies a message to the elements from `begin` on.
void CopyToElements(const net::Bytes& bytes, const Tensor& tensor, int64_t begin);

}  // namespace millrace
