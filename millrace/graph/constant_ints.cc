#include "millrace/graph/constant_ints.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMaxLength = 1 << 16;

KnownInts UnknownElements(Endpoint e) {
  const int64_t n = e.shape().num_elements();
  if (n < 0 || n > 1024) return std::nullopt;
  return std::vector<int64_t>(static_cast<size_t>(n), kUnknownInt);
}

}  // namespace

// One evaluation, with the limits on its work.
class IntEvaluator {
 public:
  explicit IntEvaluator(const ShapeContext::ConstantLookup& constants) : constants_(constants) {}

  KnownInts Evaluate(Endpoint e, int depth) {
    // Shapes are short and computed in few steps; the limits only stop graphs that are designed to be slow.
    if (e.node == nullptr || depth > 24 || ++visits_ > 2000) return std::nullopt;
    KnownInts result;
    if (const IntsFn fn = e.node->op().ints_fn) {
      IntsContext context(e, depth, this);
      result = fn(context);
    }
    if (!result) result = UnknownElements(e);
    if (result && result->size() > kMaxLength) return std::nullopt;
    return result;
  }

  const Tensor* ConstantOrNull(Endpoint e) const { return constants_ ? constants_(e) : nullptr; }

 private:
  const ShapeContext::ConstantLookup& constants_;
  int visits_ = 0;
};

KnownInts IntsContext::Input(int i) { return evaluator_->Evaluate(node().input(i), depth_ + 1); }

std::optional<int64_t> IntsContext::InputScalar(int i) {
  const KnownInts v = Input(i);
  if (!v || v->size() != 1 || (*v)[0] == kUnknownInt) return std::nullopt;
  return (*v)[0];
}

KnownInts IntsContext::JoinInputs(int begin, int end) {
  std::vector<int64_t> all;
  for (int i = begin; i < end; ++i) {
    const KnownInts part = Input(i);
    if (!part || all.size() + part->size() > kMaxLength) return std::nullopt;
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

KnownInts IntsContext::Constant() {
  const Tensor* const t = evaluator_->ConstantOrNull(output_);
  if (t == nullptr) return std::nullopt;
  if (t->dtype() == DType::kInt32) {
    const auto flat = t->flat<int32_t>();
    return std::vector<int64_t>(flat.begin(), flat.end());
  }
  if (t->dtype() == DType::kInt64) {
    const auto flat = t->flat<int64_t>();
    return std::vector<int64_t>(flat.begin(), flat.end());
  }
  return std::nullopt;
}

KnownInts UnchangedInts(IntsContext& c) {
  if (!c.has_int_input(0)) return std::nullopt;
  return c.Input(0);
}

KnownInts CombineInts(IntsContext& c, int64_t (*combine)(int64_t a, int64_t b)) {
  if (!c.has_int_input(0)) return std::nullopt;
  // For higher ranks, elements may not correspond one to one.
  if (c.input_shape(0).rank() > 1 || c.input_shape(1).rank() > 1) return std::nullopt;
  const KnownInts a = c.Input(0), b = c.Input(1);
  if (!a || !b || (a->size() != b->size() && a->size() != 1 && b->size() != 1)) return std::nullopt;
  if (a->empty() || b->empty()) return std::vector<int64_t>{};
  std::vector<int64_t> result(std::max(a->size(), b->size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = (*a)[a->size() == 1 ? 0 : i], y = (*b)[b->size() == 1 ? 0 : i];
    result[i] = x == kUnknownInt || y == kUnknownInt ? kUnknownInt : combine(x, y);
  }
  return result;
}

bool EvaluateInts(Endpoint e, const ShapeContext::ConstantLookup& constants, std::vector<int64_t>* values) {
  KnownInts result = IntEvaluator(constants).Evaluate(e, 0);
  if (!result) return false;
  *values = *std::move(result);
  return true;
}

}  // namespace millrace
