// Where the pieces of a tensor go in TensorFlow's ring and tree: the same on every member, whoever implements it.
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/cluster/collectives/device_group.h"

namespace millrace {

// The order of the members in one ring: ring[i] is the rank of the member at position i.
using RingOrder = std::vector<int>;

// The ring of a subdivision: the devices of each task, rotated by |offset|, in reverse if it is negative.
RingOrder RingFor(const DeviceGroup& group, int offset);

// The offsets of the subdivisions of a reduction of `bytes` bytes. `max_per_device` is TensorFlow's attr
// max_subdivs_per_device: -1 for one subdivision, 0 for as many as keep a piece below 4 MB, but two per device.
std::vector<int> SubdivisionOffsets(const DeviceGroup& group, size_t bytes, int max_per_device);

// The number of elements of each of `chunks` pieces of a reduced tensor but the last ones, which may have fewer or
// none: rounded up so that pieces begin at multiples of 64 bytes.
int64_t AlignedChunk(size_t element_bytes, int64_t elements, int64_t chunks);

// One broadcast among some of the members: members[i] is the rank of the one at position i.
struct BroadcastTree {
  std::vector<int> members;
  int source = 0;  // the position that has the value first

  // The position that sends to `position`; -1 for the source.
  int ReceivesFrom(int position) const;
  std::vector<int> SendsTo(int position) const;
  // -1 if the rank is not in it.
  int PositionOf(int rank) const;
};

// The broadcasts that take a value from `source_rank` to all: between tasks first, if there are several, and then
// within each task.
std::vector<BroadcastTree> BroadcastTrees(const DeviceGroup& group, int source_rank);

}  // namespace millrace
