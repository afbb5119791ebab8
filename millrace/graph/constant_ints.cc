#include "millrace/graph/constant_ints.h"

#include <algorithm>
#include <optional>

namespace millrace {
namespace {

using Ints = std::vector<int64_t>;
using MaybeInts = std::optional<Ints>;

constexpr int64_t kUnknown = kUnknownInt;

class IntEvaluator {
 public:
  explicit IntEvaluator(const ShapeContext::ConstantLookup& constants) : constants_(constants) {}

  // Elements in row-major order, kUnknown where not known; nothing when their number is not known.
  MaybeInts Evaluate(Endpoint e, int depth) {
    // Shapes are short and made in few steps: the limits only stop graphs made to be slow.
    if (e.node == nullptr || depth > 24 || ++visits_ > 2000) return std::nullopt;
    MaybeInts result = EvaluateOp(e, depth);
    if (!result) result = UnknownElements(e);
    if (result && result->size() > kMaxLength) return std::nullopt;
    return result;
  }

 private:
  static constexpr size_t kMaxLength = 1 << 16;

  static MaybeInts UnknownElements(Endpoint e) {
    const int64_t n = e.shape().num_elements();
    if (n < 0 || n > 1024) return std::nullopt;
    return Ints(static_cast<size_t>(n), kUnknown);
  }

  MaybeInts EvaluateOp(Endpoint e, int depth) {
    const Node& node = *e.node;
    const std::string& op = node.type();
    if (op == "Const") return FromConstant(e);
    if (node.num_inputs() == 0) return std::nullopt;
    if (op == "Shape" || op == "ShapeN") return FromShape(node.input(e.index).shape());
    if (op == "Size") return Scalar(node.input(0).shape().num_elements());
    if (op == "Rank") return Scalar(node.input(0).shape().rank());
    if (op == "Identity" || op == "Cast" || op == "Reshape" || op == "ExpandDims" ||
        op == "Squeeze" || op == "StopGradient" || op == "Enter") {
      if (!IsInteger(BaseType(node.input(0).dtype()))) return std::nullopt;
      return Evaluate(node.input(0), depth + 1);
    }
    if (op == "Pack") return Join(node, 0, node.num_inputs(), "axis", depth);
    if (op == "ConcatV2") return FromConcat(node, depth);
    if (op == "StridedSlice") return FromStridedSlice(node, depth);
    if (op == "Slice") return FromSlice(node, depth);
    if (op == "GatherV2" || op == "Gather") return FromGather(node, depth);
    if (op == "Prod") return FromProd(node, depth);
    return FromArithmetic(node, depth);
  }

  static MaybeInts Scalar(int64_t value) { return Ints{value < 0 ? kUnknown : value}; }

  MaybeInts FromConstant(Endpoint e) {
    const Tensor* t = constants_ ? constants_(e) : nullptr;
    if (t == nullptr) return std::nullopt;
    if (t->dtype() == DType::kInt32) {
      auto flat = t->flat<int32_t>();
      return Ints(flat.begin(), flat.end());
    }
    if (t->dtype() == DType::kInt64) {
      auto flat = t->flat<int64_t>();
      return Ints(flat.begin(), flat.end());
    }
    return std::nullopt;
  }

  static MaybeInts FromShape(const PartialShape& shape) {
    if (!shape.known_rank()) return std::nullopt;
    Ints dims(shape.dims().begin(), shape.dims().end());
    for (int64_t& d : dims) d = d < 0 ? kUnknown : d;
    return dims;
  }

  // The elements of inputs [begin, end) one after another, which is what Pack and Concat give for
  // scalars and vectors.
  MaybeInts Join(const Node& node, int begin, int end, const char* axis_attr, int depth) {
    if (axis_attr != nullptr && node.AttrOr<int64_t>(axis_attr, 0) != 0) return std::nullopt;
    Ints all;
    for (int i = begin; i < end; ++i) {
      MaybeInts part = Evaluate(node.input(i), depth + 1);
      if (!part || all.size() + part->size() > kMaxLength) return std::nullopt;
      all.insert(all.end(), part->begin(), part->end());
    }
    return all;
  }

  MaybeInts FromConcat(const Node& node, int depth) {
    const int last = node.num_inputs() - 1;
    MaybeInts axis = Evaluate(node.input(last), depth + 1);
    if (!axis || axis->size() != 1) return std::nullopt;
    for (int i = 0; i < last; ++i) {
      if (node.input(i).shape().rank() != 1) return std::nullopt;
    }
    if ((*axis)[0] != 0 && (*axis)[0] != -1) return std::nullopt;
    return Join(node, 0, last, nullptr, depth);
  }

  // A known number, alone in its tensor.
  bool One(Endpoint e, int depth, int64_t* value) {
    MaybeInts v = Evaluate(e, depth + 1);
    if (!v || v->size() != 1 || (*v)[0] == kUnknown) return false;
    *value = (*v)[0];
    return true;
  }

  MaybeInts FromStridedSlice(const Node& node, int depth) {
    if (node.input(0).shape().rank() != 1) return std::nullopt;
    if (node.AttrOr<int64_t>("new_axis_mask", 0) != 0 ||
        node.AttrOr<int64_t>("ellipsis_mask", 0) != 0) {
      return std::nullopt;
    }
    MaybeInts x = Evaluate(node.input(0), depth + 1);
    int64_t begin, end, stride;
    if (!x || !One(node.input(1), depth, &begin) || !One(node.input(2), depth, &end) ||
        !One(node.input(3), depth, &stride) || stride == 0) {
      return std::nullopt;
    }
    const int64_t n = static_cast<int64_t>(x->size());
    const auto wrap = [n](int64_t i) { return i < 0 && i >= -n ? i + n : i; };
    begin = wrap(begin);
    if ((node.AttrOr<int64_t>("shrink_axis_mask", 0) & 1) != 0) {
      if (begin < 0 || begin >= n) return std::nullopt;
      return Ints{(*x)[static_cast<size_t>(begin)]};
    }
    const int64_t low = stride > 0 ? 0 : -1;
    const int64_t high = stride > 0 ? n : n - 1;
    begin = (node.AttrOr<int64_t>("begin_mask", 0) & 1) != 0 ? (stride > 0 ? low : high)
                                                             : std::clamp(begin, low, high);
    end = (node.AttrOr<int64_t>("end_mask", 0) & 1) != 0 ? (stride > 0 ? high : low)
                                                         : std::clamp(wrap(end), low, high);
    Ints result;
    // Beyond the vector's length a stride takes one element at most.
    const int64_t step = std::clamp<int64_t>(stride, -n - 1, n + 1);
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
      result.push_back((*x)[static_cast<size_t>(i)]);
    }
    return result;
  }

  MaybeInts FromSlice(const Node& node, int depth) {
    if (node.input(0).shape().rank() != 1) return std::nullopt;
    MaybeInts x = Evaluate(node.input(0), depth + 1);
    int64_t begin, size;
    if (!x || !One(node.input(1), depth, &begin) || !One(node.input(2), depth, &size))
      return std::nullopt;
    const int64_t n = static_cast<int64_t>(x->size());
    if (begin < 0 || begin > n) return std::nullopt;
    if (size == -1) size = n - begin;
    if (size < 0 || size > n - begin) return std::nullopt;
    return Ints(x->begin() + begin, x->begin() + begin + size);
  }

  MaybeInts FromGather(const Node& node, int depth) {
    if (node.input(0).shape().rank() != 1) return std::nullopt;
    MaybeInts x = Evaluate(node.input(0), depth + 1);
    MaybeInts indices = Evaluate(node.input(1), depth + 1);
    if (!x || !indices) return std::nullopt;
    Ints result;
    for (int64_t i : *indices) {
      if (i != kUnknown && (i < 0 || i >= static_cast<int64_t>(x->size()))) return std::nullopt;
      result.push_back(i == kUnknown ? kUnknown : (*x)[static_cast<size_t>(i)]);
    }
    return result;
  }

  // The product of all elements of a vector.
  MaybeInts FromProd(const Node& node, int depth) {
    if (node.input(0).shape().rank() != 1 || !IsInteger(BaseType(node.input(0).dtype())))
      return std::nullopt;
    MaybeInts x = Evaluate(node.input(0), depth + 1);
    MaybeInts axes = Evaluate(node.input(1), depth + 1);
    if (!x || !axes || axes->size() != 1) return std::nullopt;
    int64_t product = 1;
    for (int64_t v : *x) {
      if (v == kUnknown || __builtin_mul_overflow(product, v, &product)) return Ints{kUnknown};
    }
    return Ints{product};
  }

  static int64_t Combine(const std::string& op, int64_t a, int64_t b) {
    int64_t r;
    if (a == kUnknown || b == kUnknown) return kUnknown;
    if (op == "AddV2" || op == "Add") return __builtin_add_overflow(a, b, &r) ? kUnknown : r;
    if (op == "Sub") return __builtin_sub_overflow(a, b, &r) ? kUnknown : r;
    if (op == "Mul") return __builtin_mul_overflow(a, b, &r) ? kUnknown : r;
    if (op == "Maximum") return std::max(a, b);
    if (op == "Minimum") return std::min(a, b);
    // FloorDiv and FloorMod, of which shapes only need the part above zero.
    if (a < 0 || b <= 0) return kUnknown;
    return op == "FloorDiv" ? a / b : a % b;
  }

  MaybeInts FromArithmetic(const Node& node, int depth) {
    static constexpr absl::string_view kOps[] = {"AddV2",   "Add",     "Sub",      "Mul",
                                                 "Maximum", "Minimum", "FloorDiv", "FloorMod"};
    if (node.num_inputs() != 2 || !IsInteger(BaseType(node.input(0).dtype())) ||
        std::find(std::begin(kOps), std::end(kOps), node.type()) == std::end(kOps)) {
      return std::nullopt;
    }
    // Of higher ranks, elements do not meet one to one.
    if (node.input(0).shape().rank() > 1 || node.input(1).shape().rank() > 1) return std::nullopt;
    MaybeInts a = Evaluate(node.input(0), depth + 1);
    MaybeInts b = Evaluate(node.input(1), depth + 1);
    if (!a || !b || (a->size() != b->size() && a->size() != 1 && b->size() != 1))
      return std::nullopt;
    if (a->empty() || b->empty()) return Ints{};
    Ints result(std::max(a->size(), b->size()));
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = Combine(node.type(), (*a)[a->size() == 1 ? 0 : i], (*b)[b->size() == 1 ? 0 : i]);
    }
    return result;
  }

  const ShapeContext::ConstantLookup& constants_;
  int visits_ = 0;
};

}  // namespace

bool EvaluateInts(Endpoint e, const ShapeContext::ConstantLookup& constants,
                  std::vector<int64_t>* values) {
  MaybeInts result = IntEvaluator(constants).Evaluate(e, 0);
  if (!result) return false;
  *values = *std::move(result);
  return true;
}

}  // namespace millrace
