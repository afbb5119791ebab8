#include "millrace/cluster/collectives/ring_layout.h"

#include <algorithm>
#include <cstdlib>

namespace millrace {
namespace {

constexpr size_t kChunkAlignment = 64;
constexpr size_t kMaxChunkBytes = 4 << 20;
constexpr int kDefaultSubdivisions = 2;

}  // namespace

RingOrder RingFor(const DeviceGroup& group, int offset) {
  const bool reverse = offset < 0;
  const int64_t by = std::abs(static_cast<int64_t>(offset));
  RingOrder ring;
  int first = 0;
  for (const int devices : group.devices_per_task()) {
    for (int i = 0; i < devices; ++i) {
      const int rotated = static_cast<int>((i + by) % devices);
      ring.push_back(first + (reverse ? devices - 1 - rotated : rotated));
    }
    first += devices;
  }
  return ring;
}

std::vector<int> SubdivisionOffsets(const DeviceGroup& group, size_t bytes, int max_per_device) {
  if (max_per_device < 0) return {0};
  const int tasks = static_cast<int>(group.devices_per_task().size());
  const int devices_per_task = group.size() / tasks;
  const int64_t most = int64_t{max_per_device > 0 ? max_per_device : kDefaultSubdivisions} * devices_per_task;
  int count = 1;
  while (bytes / (static_cast<size_t>(group.size()) * count) > kMaxChunkBytes && count < most) ++count;
  const int stride = std::max(1, devices_per_task / count);
  std::vector<int> offsets;
  for (int i = 0; i < count; ++i) offsets.push_back(i % 2 == 1 ? -stride * i : stride * i);
  return offsets;
}

int64_t AlignedChunk(size_t element_bytes, int64_t elements, int64_t chunks) {
  const int64_t least = elements / chunks + (elements % chunks != 0 ? 1 : 0);
  if (element_bytes >= kChunkAlignment) return least;
  // A whole multiple gets a further one, as TensorFlow has it: both ends of a buffer must agree on its size.
  const size_t beyond = static_cast<size_t>(least) * element_bytes % kChunkAlignment;
  return least + static_cast<int64_t>((kChunkAlignment - beyond) / element_bytes);
}

// The member at position r sends to 2r + 1 and 2r + 2. If the source is not at position 0, it counts as one more member
// in front of all positions, which then shift by one: it sends to 0 and 1, and r to 2r + 2 and 2r + 3.
int BroadcastTree::ReceivesFrom(int position) const {
  if (position == source) return -1;
  if (source == 0) return (position - 1) / 2;
  const int from = position / 2 - 1;
  return from < 0 ? source : from;
}

std::vector<int> BroadcastTree::SendsTo(int position) const {
  const int size = static_cast<int>(members.size());
  std::vector<int> to;
  if (position == source && source != 0) {
    if (size > 1) to.push_back(0);
    if (size > 2 && source != 1) to.push_back(1);
  }
  const int64_t next = source == 0 ? 2 * int64_t{position} + 1 : 2 * (int64_t{position} + 1);
  for (int64_t child = next; child < next + 2; ++child) {
    if (child < size && child != source) to.push_back(static_cast<int>(child));
  }
  return to;
}

int BroadcastTree::PositionOf(int rank) const {
  const auto it = std::find(members.begin(), members.end(), rank);
  return it == members.end() ? -1 : static_cast<int>(it - members.begin());
}

std::vector<BroadcastTree> BroadcastTrees(const DeviceGroup& group, int source_rank) {
  const std::vector<int>& devices = group.devices_per_task();
  BroadcastTree between;
  std::vector<BroadcastTree> within;
  int first = 0;
  for (size_t task = 0; task < devices.size(); ++task) {
    const bool has_source = source_rank >= first && source_rank < first + devices[task];
    if (has_source) between.source = static_cast<int>(task);
    between.members.push_back(has_source ? source_rank : first);
    BroadcastTree tree;
    if (has_source) tree.source = source_rank - first;
    for (int i = 0; i < devices[task]; ++i) tree.members.push_back(first + i);
    within.push_back(std::move(tree));
    first += devices[task];
  }
  if (devices.size() > 1) within.insert(within.begin(), std::move(between));
  return within;
}

}  // namespace millrace
