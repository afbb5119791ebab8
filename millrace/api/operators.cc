#include "millrace/api/operators.h"

#include "millrace/api/op_call.h"
#include "millrace/api/scope_state.h"

namespace millrace {
namespace {

Output Binary(const Scope& scope, const char* op, const Input& a, const Input& b) {
  // Two default-constructed outputs: there is no graph to record the error in.
  if (api_internal::IsNull(scope)) return Output();
  return OpCall(scope, op).In(a).In(b).Add().output(0);
}

// If one operand is captured from outside a function body, the op belongs to the body.
const Scope& ScopeOf(const Output& a, const Output& b) {
  if (api_internal::IsNull(a.scope())) return b.scope();
  if (api_internal::IsNull(b.scope())) return a.scope();
  return api_internal::StateOf(b.scope()).depth > api_internal::StateOf(a.scope()).depth ? b.scope() : a.scope();
}

const char* AddOpFor(DType type) { return type == DType::kString ? "Add" : "AddV2"; }
const char* DivOpFor(DType type) { return IsInteger(type) ? "Div" : "RealDiv"; }

}  // namespace

#define MR_BINARY(symbol, op)                                 \
  Output operator symbol(const Output& a, const Output& b) {  \
    [[maybe_unused]] const DType type = a.dtype();            \
    return Binary(ScopeOf(a, b), op, a, b);                   \
  }                                                           \
  Output operator symbol(const Output& a, const Literal& b) { \
    [[maybe_unused]] const DType type = a.dtype();            \
    return Binary(a.scope(), op, a, b);                       \
  }                                                           \
  Output operator symbol(const Literal& a, const Output& b) { \
    [[maybe_unused]] const DType type = b.dtype();            \
    return Binary(b.scope(), op, a, b);                       \
  }
MR_BINARY(+, AddOpFor(type))
MR_BINARY(-, "Sub")
MR_BINARY(*, "Mul")
MR_BINARY(/, DivOpFor(type))
MR_BINARY(<, "Less")
MR_BINARY(<=, "LessEqual")
MR_BINARY(>, "Greater")
MR_BINARY(>=, "GreaterEqual")
#undef MR_BINARY

Output operator-(const Output& a) {
  if (api_internal::IsNull(a.scope())) return Output();
  return OpCall(a.scope(), "Neg").In(a).Add().output(0);
}

}  // namespace millrace
