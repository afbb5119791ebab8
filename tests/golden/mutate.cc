#include "tests/golden/mutate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "millrace/graph/op_schema.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace::golden {
namespace {

// Written out because std's distributions differ between libraries, and a seed must give the same result everywhere.
class Dice {
 public:
  explicit Dice(std::mt19937_64& random) : random_(random) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(n, 1))); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  template <typename T>
  const T& Of(const std::vector<T>& values) {
    return values[static_cast<size_t>(Below(static_cast<int64_t>(values.size())))];
  }
  // Integers that tend to expose bugs.
  int64_t Int() {
    static const std::vector<int64_t> kNasty = {0,
                                                1,
                                                -1,
                                                2,
                                                3,
                                                -2,
                                                7,
                                                -7,
                                                16,
                                                255,
                                                1 << 16,
                                                1 << 20,
                                                1 << 30,
                                                INT32_MAX,
                                                INT32_MIN,
                                                int64_t{1} << 31,
                                                int64_t{1} << 32,
                                                int64_t{1} << 40,
                                                int64_t{1} << 62,
                                                INT64_MAX,
                                                INT64_MIN,
                                                INT64_MIN + 1,
                                                5,
                                                100,
                                                -100};
    return OneIn(2) ? Below(6) - 1 : Of(kNasty);
  }
  double Float() {
    static const std::vector<double> kNasty = {0,     -0.0,  1,        -1,        0.5,          2,    1e-30, 1e30,
                                               -1e30, 1e300, HUGE_VAL, -HUGE_VAL, std::nan(""), 1e10, -1e10, 3.7};
    return Of(kNasty);
  }

 private:
  std::mt19937_64& random_;
};

const std::vector<int>& AllTypes() {
  static const std::vector<int> types = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 17, 18, 19, 22, 23, 11, 12, 13, 20, 21, 0};
  return types;
}

void SetElement(Dice& dice, Tensor* tensor, int64_t i) {
  const bool known = DispatchType(PlainTypes{}, tensor->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T& element = tensor->data<T>()[i];
    if constexpr (std::is_same_v<T, bool>) {
      element = dice.OneIn(2);
    } else if constexpr (std::is_integral_v<T>) {
      element = static_cast<T>(dice.Int());
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {
      element = T(static_cast<float>(dice.Float()), static_cast<float>(dice.Float()));
    } else if constexpr (std::is_same_v<T, std::complex<double>>) {
      element = T(dice.Float(), dice.Float());
    } else {
      element = static_cast<T>(static_cast<float>(dice.Float()));
    }
  });
  if (!known && tensor->dtype() == DType::kString) {
    static const std::vector<std::string> kTexts = {
        "", "x", std::string(300, 'a'), std::string("\0\xff\x80", 3), "-1", "1e999", "%", "(", "\\"};
    tensor->data<std::string>()[i] = dice.Of(kTexts);
  }
}

Shape RandomShape(Dice& dice, const Shape& old) {
  Shape shape = old;
  switch (dice.Below(7)) {
    case 0:
      return Shape();
    case 1:
      return Shape({0});
    case 2: {  // another rank altogether
      Shape other;
      const int64_t rank = dice.OneIn(8) ? 8 + dice.Below(3) : dice.Below(6);
      for (int64_t i = 0; i < rank; ++i) other.AddDim(dice.Below(4));
      return other;
    }
    case 3:
      if (shape.rank() > 0) shape.RemoveDim(static_cast<int>(dice.Below(shape.rank())));
      return shape;
    case 4:
      shape.InsertDim(static_cast<int>(dice.Below(shape.rank() + 1)), dice.Below(3));
      return shape;
    default:
      if (shape.rank() > 0) shape.set_dim(static_cast<int>(dice.Below(shape.rank())), dice.Below(8));
      return shape;
  }
}

// Repeats the elements of `from` in another shape; `convert` is used if the type changes.
Tensor Refill(const Tensor& from, const Shape& shape) {
  if (shape.num_elements() > (1 << 16)) return from;
  Tensor to(from.dtype(), shape);
  DispatchMove(from.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t n = from.num_elements();
    for (int64_t i = 0; i < to.num_elements(); ++i) to.raw<T>()[i] = n > 0 ? from.raw<T>()[i % n] : T();
  });
  return to;
}

Tensor Converted(const Tensor& from, DType type) {
  Tensor to(type, from.shape());
  DispatchType(PlainTypes{}, type, [&](auto to_tag) {
    using To = typename decltype(to_tag)::type;
    DispatchType(PlainTypes{}, from.dtype(), [&](auto from_tag) {
      using From = typename decltype(from_tag)::type;
      for (int64_t i = 0; i < to.num_elements(); ++i) {
        double value = 0;
        if constexpr (std::is_same_v<From, std::complex<float>> || std::is_same_v<From, std::complex<double>>) {
          value = from.data<From>()[i].real();
        } else {
          value = static_cast<double>(from.data<From>()[i]);
        }
        if constexpr (std::is_integral_v<To>) {
          to.data<To>()[i] =
              static_cast<To>(std::isfinite(value) && std::fabs(value) < 1e9 ? static_cast<int64_t>(value) : 1);
        } else {
          to.data<To>()[i] = static_cast<To>(static_cast<float>(value));
        }
      }
    });
  });
  return to;
}

void MutateTensor(Dice& dice, pb::TensorProto* proto) {
  StatusOr<Tensor> tensor = TensorFromProto(*proto);
  if (!tensor.ok()) return;
  Tensor value = *std::move(tensor);
  if (dice.OneIn(3)) value = Refill(value, RandomShape(dice, value.shape()));
  if (value.num_elements() > 0 && !dice.OneIn(4)) {
    value = value.Clone();
    const int64_t changes = dice.OneIn(3) ? value.num_elements() : 1 + dice.Below(2);
    for (int64_t i = 0; i < std::min<int64_t>(changes, 1000); ++i)
      SetElement(dice, &value, dice.Below(value.num_elements()));
  }
  proto->Clear();
  TensorToProto(value, proto);
}

void MutateShapeProto(Dice& dice, pb::TensorShapeProto* shape) {
  if (shape->dim_size() > 0 && !dice.OneIn(4)) {
    shape->mutable_dim(static_cast<int>(dice.Below(shape->dim_size())))->set_size(dice.Int());
  } else if (dice.OneIn(2)) {
    shape->add_dim()->set_size(dice.Int());
  } else {
    shape->Clear();
    shape->set_unknown_rank(dice.OneIn(2));
  }
}

void MutateList(Dice& dice, const OpAttr* attr, pb::AttrValue::ListValue* list) {
  const int64_t how = dice.Below(4);
  const auto change = [&](auto* values, auto make) {
    if (how == 0 || values->empty()) {
      values->Add(make());
    } else if (how == 1) {
      values->RemoveLast();
    } else {
      values->Set(static_cast<int>(dice.Below(values->size())), make());
    }
  };
  const std::string kind = attr == nullptr ? "" : attr->type;
  if (list->i_size() > 0 || kind == "list(int)") change(list->mutable_i(), [&] { return dice.Int(); });
  if (list->f_size() > 0 || kind == "list(float)")
    change(list->mutable_f(), [&] { return static_cast<float>(dice.Float()); });
  if (list->type_size() > 0 || kind == "list(type)") {
    change(list->mutable_type(),
           [&] { return static_cast<std::decay_t<decltype(list->type(0))>>(dice.Of(AllTypes())); });
  }
  if (list->shape_size() > 0)
    MutateShapeProto(dice, list->mutable_shape(static_cast<int>(dice.Below(list->shape_size()))));
}

void MutateAttr(Dice& dice, const OpAttr* attr, pb::AttrValue* value) {
  switch (value->value_case()) {
    case pb::AttrValue::kI:
      value->set_i(dice.Int());
      return;
    case pb::AttrValue::kF:
      value->set_f(static_cast<float>(dice.Float()));
      return;
    case pb::AttrValue::kB:
      value->set_b(!value->b());
      return;
    case pb::AttrValue::kS:
      if (attr != nullptr && !attr->allowed_strings.empty() && !dice.OneIn(6)) {
        value->set_s(dice.Of(attr->allowed_strings));
      } else {
        value->set_s(dice.OneIn(2) ? "" : dice.OneIn(2) ? "NCHW" : "no such thing");
      }
      return;
    case pb::AttrValue::kType:
      if (attr != nullptr && !attr->allowed_types.empty() && !dice.OneIn(6)) {
        value->set_type(static_cast<std::decay_t<decltype(value->type())>>(dice.Of(attr->allowed_types)));
      } else {
        value->set_type(static_cast<std::decay_t<decltype(value->type())>>(dice.Of(AllTypes())));
      }
      return;
    case pb::AttrValue::kShape:
      MutateShapeProto(dice, value->mutable_shape());
      return;
    case pb::AttrValue::kTensor:
      MutateTensor(dice, value->mutable_tensor());
      return;
    case pb::AttrValue::kList:
      MutateList(dice, attr, value->mutable_list());
      return;
    default:
      return;
  }
}

std::string ChangeAttr(Dice& dice, Program* program) {
  pb::NodeDef* node = program->graph.mutable_node(static_cast<int>(dice.Below(program->graph.node_size())));
  const OpSchema* schema = OpRegistry::Global().FindOrNull(node->op());
  std::vector<std::string> names;
  for (const auto& [name, value] : node->attr()) {
    if (name.empty() || name[0] != '_') names.push_back(name);
  }
  if (schema != nullptr) {
    for (const OpAttr& attr : schema->attrs) {
      if (node->attr().count(attr.name) == 0 && attr.has_default) {
        names.push_back(attr.name);
      }
    }
  }
  if (names.empty()) return "nothing";
  std::sort(names.begin(), names.end());
  const std::string name = dice.Of(names);
  const OpAttr* attr = schema == nullptr ? nullptr : schema->FindAttr(name);
  if (node->attr().count(name) == 0) (*node->mutable_attr())[name] = attr->default_value;
  MutateAttr(dice, attr, &(*node->mutable_attr())[name]);
  return absl::StrCat("attr ", name, " of ", node->name(), " (", node->op(), ") is ",
                      (*node->mutable_attr())[name].ShortDebugString().substr(0, 200));
}

std::vector<pb::TensorProto*> Tensors(Program* program, std::vector<std::string>* names) {
  std::vector<pb::TensorProto*> tensors;
  for (pb::NodeDef& node : *program->graph.mutable_node()) {
    if (node.op() != "Const") continue;
    tensors.push_back((*node.mutable_attr())["value"].mutable_tensor());
    names->push_back(node.name());
  }
  for (pb::RunStepRequest& step : program->steps) {
    for (auto& feed : *step.mutable_feed()) {
      tensors.push_back(feed.mutable_tensor());
      names->push_back(feed.name());
    }
  }
  return tensors;
}

std::string ChangeValue(Dice& dice, Program* program) {
  std::vector<std::string> names;
  const std::vector<pb::TensorProto*> tensors = Tensors(program, &names);
  if (tensors.empty()) return "nothing";
  const int64_t i = dice.Below(static_cast<int64_t>(tensors.size()));
  MutateTensor(dice, tensors[i]);
  const StatusOr<Tensor> now = TensorFromProto(*tensors[i]);
  return absl::StrCat("value of ", names[i], " is ", now.ok() ? now->DebugString(8).substr(0, 200) : "malformed");
}

// Every attr, constant and feed of one type becomes another type: what remains is a valid graph more often than not.
std::string ChangeType(Dice& dice, Program* program) {
  std::vector<int> used;
  for (const pb::NodeDef& node : program->graph.node()) {
    for (const auto& [name, value] : node.attr()) {
      if (value.value_case() == pb::AttrValue::kType) used.push_back(value.type());
    }
  }
  if (used.empty()) return "nothing";
  std::sort(used.begin(), used.end());
  const int from = dice.Of(used), to = dice.Of(AllTypes());
  using Type = std::decay_t<decltype(std::declval<pb::AttrValue>().type())>;
  const auto convert = [&](pb::TensorProto* proto) {
    if (proto->dtype() != from) return;
    const StatusOr<Tensor> old = TensorFromProto(*proto);
    if (!old.ok() || !IsKnown(static_cast<DType>(to))) return;
    proto->Clear();
    TensorToProto(Converted(*old, static_cast<DType>(to)), proto);
  };
  for (pb::NodeDef& node : *program->graph.mutable_node()) {
    for (auto& [name, value] : *node.mutable_attr()) {
      if (value.value_case() == pb::AttrValue::kType && value.type() == from) value.set_type(static_cast<Type>(to));
      if (value.value_case() == pb::AttrValue::kTensor) convert(value.mutable_tensor());
      if (value.value_case() != pb::AttrValue::kList) continue;
      for (int i = 0; i < value.list().type_size(); ++i) {
        if (value.list().type(i) == from) value.mutable_list()->set_type(i, static_cast<Type>(to));
      }
    }
  }
  for (pb::RunStepRequest& step : program->steps) {
    for (auto& feed : *step.mutable_feed()) convert(feed.mutable_tensor());
  }
  return absl::StrCat(DTypeName(static_cast<DType>(from)), " becomes ", DTypeName(static_cast<DType>(to)));
}

std::string ChangeEdge(Dice& dice, Program* program) {
  pb::NodeDef* node = program->graph.mutable_node(static_cast<int>(dice.Below(program->graph.node_size())));
  if (node->input_size() == 0) return "nothing";
  const int i = static_cast<int>(dice.Below(node->input_size()));
  const pb::NodeDef& other = program->graph.node(static_cast<int>(dice.Below(program->graph.node_size())));
  switch (dice.Below(4)) {
    case 0:
      node->mutable_input()->DeleteSubrange(i, 1);
      return absl::StrCat("input ", i, " of ", node->name(), " is gone");
    case 1:
      node->set_input(i, node->input(static_cast<int>(dice.Below(node->input_size()))));
      break;
    case 2:
      node->set_input(i, absl::StrCat(other.name(), ":", dice.Below(3)));
      break;
    default:
      node->set_input(i, other.name());
  }
  return absl::StrCat("input ", i, " of ", node->name(), " is ", node->input(i));
}

// Constants become fed placeholders of unknown shape, so that kernels see what shape inference would refuse.
std::string HideConstants(Dice& dice, Program* program) {
  const int64_t keep_one_in = 2 + dice.Below(6);
  for (pb::NodeDef& node : *program->graph.mutable_node()) {
    if (node.op() != "Const" || node.attr().count("value") == 0 || dice.OneIn(keep_one_in)) continue;
    const pb::TensorProto value = node.attr().at("value").tensor();
    if (static_cast<DType>(value.dtype()) == DType::kVariant) continue;
    node.set_op("Placeholder");
    node.mutable_attr()->erase("value");
    pb::AttrValue unknown;
    unknown.mutable_shape()->set_unknown_rank(true);
    (*node.mutable_attr())["shape"] = unknown;
    for (pb::RunStepRequest& step : program->steps) {
      const bool taken =
          std::any_of(
              step.feed().begin(), step.feed().end(),
              [&](const auto& feed) { return feed.name() == node.name() + ":0" || feed.name() == node.name(); }) ||
          std::any_of(step.fetch().begin(), step.fetch().end(),
                      [&](const std::string& fetch) { return fetch == node.name() + ":0" || fetch == node.name(); });
      if (taken) continue;
      auto* feed = step.add_feed();
      feed->set_name(node.name() + ":0");
      *feed->mutable_tensor() = value;
    }
  }
  // Placeholders of the case's own stop promising a shape.
  for (pb::NodeDef& node : *program->graph.mutable_node()) {
    if (node.op() != "Placeholder") continue;
    pb::AttrValue unknown;
    unknown.mutable_shape()->set_unknown_rank(true);
    (*node.mutable_attr())["shape"] = unknown;
    node.mutable_attr()->erase("_output_shapes");
  }
  return "constants are fed";
}

}  // namespace

std::string Mutate(Program* program, std::mt19937_64& random) {
  Dice dice(random);
  if (program->graph.node_size() == 0) return "nothing";
  std::vector<std::string> done;
  if (dice.OneIn(4)) done.push_back(ChangeType(dice, program));
  if (!dice.OneIn(3)) done.push_back(HideConstants(dice, program));
  const int64_t changes = 1 + dice.Below(3);
  for (int64_t i = 0; i < changes; ++i) {
    const int64_t kind = dice.Below(10);
    done.push_back(kind < 6   ? ChangeValue(dice, program)
                   : kind < 9 ? ChangeAttr(dice, program)
                              : ChangeEdge(dice, program));
  }
  return absl::StrJoin(done, "; ");
}

}  // namespace millrace::golden
