#include "millrace/graph/placement.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace millrace {
namespace {

// The maximum number of devices listed in a message.
constexpr size_t kMaxListed = 256;

// Disjoint sets of node ids.
class Groups {
 public:
  explicit Groups(int n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  int Find(int i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void Join(int a, int b) { parent_[Find(b)] = Find(a); }

 private:
  std::vector<int> parent_;
};

bool TiesTogether(const Endpoint& source, const Node& consumer, int input) {
  if (IsRef(source.dtype())) return IsRef(consumer.input_type(input));
  return source.dtype() == DType::kResource;
}

template <typename T>
bool Contradict(const std::optional<T>& a, const std::optional<T>& b) {
  return a && b && *a != *b;
}
bool Contradict(const DeviceName& a, const DeviceName& b) {
  return Contradict(a.job, b.job) || Contradict(a.replica, b.replica) || Contradict(a.task, b.task) ||
         Contradict(a.type, b.type) || Contradict(a.index, b.index);
}

std::string Describe(const Node& node) { return absl::StrCat("{{node ", node.name(), "}} (op ", node.type(), ")"); }

// Places one graph. Even a large graph has few distinct device requests ("wishes"), ops and (request, ops)
// combinations, so each is resolved once and then referred to by number.
class Placer {
 public:
  Placer(Graph* graph, const PlacementOptions& options)
      : graph_(*graph),
        options_(options),
        groups_(graph->max_id()),
        is_named_(graph->max_id(), false),
        follows_(graph->max_id(), false),
        group_size_(graph->max_id(), 0),
        group_(graph->max_id()) {}

  Status Run() {
    MR_RETURN_IF_ERROR(ReadDevices());
    JoinColocated();
    MR_RETURN_IF_ERROR(GatherWishes());
    std::vector<Node*> makers, askers;
    for (Node* node : graph_.nodes()) {
      if (!node->assigned_device().empty()) continue;
      if (types_.size() > 1 && IsFree(*node)) {
        if (node->num_inputs() == 0 && node->num_outputs() == 1) {
          makers.push_back(node);
          continue;
        }
        if (node->num_inputs() == 1 && node->op().Has(OpTrait::kShapeOf)) {
          askers.push_back(node);
          continue;
        }
      }
      MR_RETURN_IF_ERROR(Place(node));
    }
    for (Node* node : askers) {
      if (!Follow(node, node->input(0).node)) MR_RETURN_IF_ERROR(Place(node));
    }
    if (!makers.empty()) {
      const auto consumers = ConsumersById(graph_);
      for (Node* node : makers) {
        const Node* user = nullptr;
        bool agree = true;
        for (const Consumer& c : consumers[node->id()]) {
          if (c.slot < 0) continue;
          agree &= user == nullptr || c.node->assigned_device() == user->assigned_device();
          user = c.node;
        }
        if (user == nullptr || !agree || !Follow(node, user)) MR_RETURN_IF_ERROR(Place(node));
      }
    }
    return absl::OkStatus();
  }

 private:
  // A group of colocated nodes and their merged request.
  struct Group {
    int wish = 0;                  // index into wishes_; 0 is the empty request
    const Node* wisher = nullptr;  // the first node with a non-empty request
    uint64_t types = ~0ull;        // device types that have kernels for all of them
    int device = -1;               // -1 until chosen
  };

  Status Place(Node* node) {
    MR_ASSIGN_OR_RETURN(const int device, DeviceFor(*node));
    graph_.SetAssignedDevice(node, options_.devices[device]);
    return absl::OkStatus();
  }

  // Asks for no device, and shares none with another node.
  bool IsFree(const Node& node) {
    const int root = groups_.Find(node.id());
    return node.requested_device().empty() && group_[root].wisher == nullptr && group_size_[root] == 1 &&
           !node.op().is_stateful;
  }

  // Puts the node where `leader` is, if there is a kernel and that is in the task that it would be in.
  bool Follow(Node* node, const Node* leader) {
    for (size_t d = 0; d < devices_.size(); ++d) {
      if (options_.devices[d] != leader->assigned_device()) continue;
      DeviceName task = Completed({});
      task.type.reset();
      task.index.reset();
      if ((TypesFor(*node) >> type_of_[d] & 1) == 0 || !task.Matches(devices_[d])) return false;
      graph_.SetAssignedDevice(node, options_.devices[d]);
      return true;
    }
    return false;
  }

  Status ReadDevices() {
    for (const std::string& name : options_.devices) {
      MR_ASSIGN_OR_RETURN(DeviceName parsed, DeviceName::Parse(name));
      if (!parsed.IsFull()) return InvalidArgument("device '", name, "' is not a full name");
      const auto [it, is_new] = type_index_.emplace(*parsed.type, static_cast<int>(types_.size()));
      if (is_new) types_.push_back(*parsed.type);
      if (types_.size() > 64) return InvalidArgument("more than 64 types of devices");
      type_of_.push_back(it->second);
      devices_.push_back(std::move(parsed));
    }
    // Tasks in the order given; within a task, the CPU comes last.
    absl::flat_hash_map<std::string, int> tasks;
    std::vector<std::pair<int, bool>> rank;
    for (const DeviceName& device : devices_) {
      DeviceName task = device;
      task.type.reset();
      task.index.reset();
      rank.emplace_back(tasks.try_emplace(task.ToString(), static_cast<int>(tasks.size())).first->second,
                        device.type == "CPU");
    }
    preferred_.resize(devices_.size());
    std::iota(preferred_.begin(), preferred_.end(), 0);
    std::stable_sort(preferred_.begin(), preferred_.end(), [&](int a, int b) { return rank[a] < rank[b]; });
    MR_ASSIGN_OR_RETURN(fallback_, DeviceName::Parse(options_.default_device));
    wishes_.push_back({});
    wish_index_.emplace("", 0);
    return absl::OkStatus();
  }

  void JoinColocated() {
    for (const Node* node : graph_.nodes()) {
      for (int i = 0; i < node->num_inputs(); ++i) {
        if (!TiesTogether(node->input(i), *node, i)) continue;
        follows_[node->id()] = true;
        groups_.Join(node->input(i).node->id(), node->id());
      }
      const pb::AttrValue* classes = node->FindAttr("_class");
      if (classes == nullptr) continue;
      for (const std::string& name : classes->list().s()) {
        absl::string_view other = name;
        if (!absl::ConsumePrefix(&other, "loc:@")) continue;
        // A node that pruning removed imposes no constraint.
        const Node* found = graph_.FindNode(other);
        if (found == nullptr || found == node) continue;
        is_named_[found->id()] = true;
        groups_.Join(found->id(), node->id());
      }
    }
    for (const Node* node : graph_.nodes()) ++group_size_[groups_.Find(node->id())];
  }

  // Precedence: nodes that are already placed, then nodes named in others' _class, then the rest in order. A node that
  // uses a reference or a handle is placed with its resource, whatever it requests itself.
  Status GatherWishes() {
    for (const Node* node : graph_.nodes()) {
      if (!node->assigned_device().empty()) MR_RETURN_IF_ERROR(Wish(*node, node->assigned_device(), /*binding=*/false));
    }
    enum Turn { kNamed, kOther, kFollower };
    for (const Turn turn : {kNamed, kOther, kFollower}) {
      for (const Node* node : graph_.nodes()) {
        const Turn own = follows_[node->id()] ? kFollower : is_named_[node->id()] ? kNamed : kOther;
        if (own != turn || !node->assigned_device().empty()) continue;
        Group& group = group_[groups_.Find(node->id())];
        group.types &= TypesFor(*node);
        if (TakesArgument(*node)) group.types &= TypesThatAre("CPU");
        if (node->requested_device().empty()) continue;
        const bool binding = turn != kFollower && !options_.allow_soft_placement;
        MR_RETURN_IF_ERROR(Wish(*node, node->requested_device(), binding));
      }
    }
    return absl::OkStatus();
  }

  Status Wish(const Node& node, const std::string& device, bool binding) {
    if (last_text_ == nullptr || *last_text_ != device) {
      const auto [it, is_new] = wish_index_.try_emplace(device, static_cast<int>(wishes_.size()));
      if (is_new) {
        StatusOr<DeviceName> parsed = DeviceName::Parse(device);
        if (!parsed.ok())
          return InvalidArgument(Describe(node), " asks for a malformed device: ", parsed.status().message());
        wishes_.push_back(*std::move(parsed));
      }
      last_text_ = &device;
      last_wish_ = it->second;
    }
    Group& group = group_[groups_.Find(node.id())];
    if (group.wisher == nullptr) {
      group.wish = last_wish_;
      group.wisher = &node;
      return absl::OkStatus();
    }
    if (group.wish == last_wish_) return absl::OkStatus();
    const auto [it, is_new] = merged_.try_emplace(std::make_pair(group.wish, last_wish_), -1);
    if (is_new && !Contradict(wishes_[group.wish], wishes_[last_wish_])) {
      DeviceName both = wishes_[group.wish].Over(wishes_[last_wish_]);
      const auto [at, is_new_wish] = wish_index_.try_emplace(both.ToString(), static_cast<int>(wishes_.size()));
      if (is_new_wish) wishes_.push_back(std::move(both));
      it->second = at->second;
    }
    if (it->second >= 0) {
      group.wish = it->second;
    } else if (binding) {
      return InvalidArgument("cannot place ", Describe(node), ": it asks for device ", device,
                             ", but must be on the same device as ", Describe(*group.wisher), ", which asks for ",
                             DeviceAskedBy(*group.wisher), "\n\t [[{{node ", node.name(), "}}]]");
    }
    return absl::OkStatus();
  }

  static const std::string& DeviceAskedBy(const Node& node) {
    return node.assigned_device().empty() ? node.requested_device() : node.assigned_device();
  }

  // Bit i: devices of types_[i] have a kernel for the node's op.
  uint64_t TypesFor(const Node& node) {
    // With one type of device, as on most machines, it is enough to ask once per op.
    const auto [it, is_new] = kernels_.try_emplace({&node.op(), types_.size() > 1 ? TypesOf(node) : ""}, 0);
    for (size_t i = 0; is_new && i < types_.size(); ++i) {
      if (options_.has_kernel(node, types_[i])) it->second |= 1ull << i;
    }
    return it->second;
  }

  // True if the node takes a variable that the caller of this function, or a client, gives. A call is the CPU's, and so
  // is what is given to it.
  static bool TakesArgument(const Node& node) {
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (node.input(i).node->is_detached() && TiesTogether(node.input(i), node, i)) return true;
    }
    return false;
  }

  uint64_t TypesThatAre(absl::string_view type) const {
    const auto it = type_index_.find(type);
    return it == type_index_.end() ? 0 : 1ull << it->second;
  }

  // The node's own types, as a key.
  static std::string TypesOf(const Node& node) {
    std::string key;
    for (const OpAttr& attr : node.op().attrs) {
      if (attr.type == "type")
        absl::StrAppend(&key, static_cast<int>(node.AttrOr<DType>(attr.name, DType::kInvalid)), ",");
    }
    return key;
  }

  // The request completed from the default device. The default's task applies only to the default's job.
  DeviceName Completed(const DeviceName& wish) const {
    DeviceName base = fallback_;
    if (wish.job && wish.job != base.job) {
      base.replica.reset();
      base.task.reset();
    }
    return wish.Over(base);
  }

  int FirstMatch(const DeviceName& wish, uint64_t types) const {
    for (const int d : preferred_) {
      if ((types >> type_of_[d] & 1) != 0 && wish.Matches(devices_[d])) return d;
    }
    return -1;
  }

  int Choose(int wish_number, uint64_t types) {
    const auto [it, is_new] = chosen_.try_emplace(std::make_pair(wish_number, types), -1);
    if (!is_new) return it->second;
    const DeviceName& wish = wishes_[wish_number];
    int& device = it->second;
    device = FirstMatch(Completed(wish), types);
    // The request takes precedence over the default, so the default's device type must not make it fail.
    if (device < 0 && !wish.type && !wish.index) {
      DeviceName relaxed = Completed(wish);
      relaxed.type.reset();
      relaxed.index.reset();
      device = FirstMatch(relaxed, types);
    }
    if (device >= 0 || !options_.allow_soft_placement) return device;
    // Another device type on the requested task.
    DeviceName task = wish;
    task.type.reset();
    task.index.reset();
    DeviceName here = Completed(task);
    here.type.reset();
    here.index.reset();
    device = FirstMatch(here, types);
    if (device < 0 && !wish.job && !wish.replica && !wish.task) device = FirstMatch({}, types);
    return device;
  }

  StatusOr<int> DeviceFor(const Node& node) {
    Group& group = group_[groups_.Find(node.id())];
    if (group.device < 0) {
      group.device = Choose(group.wish, group.types);
      if (group.device < 0) return CannotPlace(group, node);
    }
    return group.device;
  }

  Status CannotPlace(const Group& group, const Node& node) {
    const DeviceName wish = Completed(wishes_[group.wish]);
    const Node& asks = group.wisher != nullptr ? *group.wisher : node;
    const auto where = [](const Node& n) { return absl::StrCat("\n\t [[{{node ", n.name(), "}}]]"); };
    if (FirstMatch(wish, ~0ull) < 0) {
      return InvalidArgument("cannot place ", Describe(asks), ": it asks for device ", DeviceAskedBy(asks),
                             ", but the available devices are: ", DescribeDevices(), where(asks));
    }
    const int root = groups_.Find(node.id());
    for (const Node* member : graph_.nodes()) {
      if (groups_.Find(member->id()) != root || FirstMatch(wish, TypesFor(*member)) >= 0) continue;
      return InvalidArgument("cannot place ", Describe(*member), ": no kernel for op ", member->type(), " on ",
                             wish.ToString().empty() ? "any device" : absl::StrCat("device ", wish.ToString()),
                             "; the available devices are: ", DescribeDevices(), where(*member));
    }
    return InvalidArgument("cannot place ", Describe(asks),
                           ": no device has kernels for all the nodes that it is colocated with", where(asks));
  }

  std::string DescribeDevices() const {
    if (options_.devices.size() <= kMaxListed) return absl::StrJoin(options_.devices, ", ");
    return absl::StrCat(absl::StrJoin(absl::MakeConstSpan(options_.devices).first(kMaxListed), ", "), " and ",
                        options_.devices.size() - kMaxListed, " more");
  }

  Graph& graph_;
  const PlacementOptions& options_;
  std::vector<DeviceName> devices_;
  std::vector<int> type_of_;    // by device, into types_
  std::vector<int> preferred_;  // devices, the preferred ones first
  std::vector<std::string> types_;
  absl::flat_hash_map<std::string, int> type_index_;
  DeviceName fallback_;

  Groups groups_;
  std::vector<bool> is_named_;   // by id: some node's _class names it
  std::vector<bool> follows_;    // by id: it takes a reference or a handle
  std::vector<int> group_size_;  // by id of the set's representative
  std::vector<Group> group_;     // by id of the set's representative
  std::vector<DeviceName> wishes_;
  absl::flat_hash_map<std::string, int> wish_index_;
  absl::flat_hash_map<std::pair<int, int>, int> merged_;  // -1 if they conflict
  absl::flat_hash_map<std::pair<const OpSchema*, std::string>, uint64_t> kernels_;
  absl::flat_hash_map<std::pair<int, uint64_t>, int> chosen_;
  const std::string* last_text_ = nullptr;  // consecutive nodes often have the same request
  int last_wish_ = 0;
};

}  // namespace

Status PlaceNodes(Graph* graph, const PlacementOptions& options) { return Placer(graph, options).Run(); }

}  // namespace millrace
