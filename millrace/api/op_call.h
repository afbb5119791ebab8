// The implementation of all op builders: checks the arguments against the op's schema, converts literals to constants
// and adds the node.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/api/input.h"
#include "millrace/api/output.h"
#include "millrace/graph/attr.h"

namespace millrace {

// OpCall(scope, "MatMul").In(a).In(b).Attr("transpose_a", true).Add().output(0)
//
// Call In once per input of the schema, in order. Types and list lengths are inferred from the inputs. Use it within
// one expression only: it keeps pointers to the inputs.
class OpCall {
 public:
  OpCall(const Scope& scope, const char* op) : scope_(scope), op_(op) {}

  OpCall& In(const Input& input) &;
  OpCall& In(const InputList& list) &;
  OpCall& Attr(const char* name, bool value) &;
  OpCall& Attr(const char* name, int64_t value) &;
  OpCall& Attr(const char* name, float value) &;
  OpCall& Attr(const char* name, DType value) &;
  OpCall& Attr(const char* name, const std::string& value) &;
  OpCall& Attr(const char* name, const PartialShape& value) &;
  OpCall& Attr(const char* name, const Tensor& value) &;
  OpCall& Attr(const char* name, const std::vector<int64_t>& value) &;
  OpCall& Attr(const char* name, const std::vector<float>& value) &;
  OpCall& Attr(const char* name, const std::vector<bool>& value) &;
  OpCall& Attr(const char* name, const std::vector<DType>& value) &;
  OpCall& Attr(const char* name, const std::vector<std::string>& value) &;
  OpCall& Attr(const char* name, const std::vector<PartialShape>& value) &;
  OpCall& Attr(const char* name, const pb::NameAttrList& value) &;
  OpCall& Attr(const char* name, const pb::AttrValue& value) &;
  OpCall&& In(const Input& input) && { return std::move(In(input)); }
  OpCall&& In(const InputList& list) && { return std::move(In(list)); }
  template <typename T>
  OpCall&& Attr(const char* name, const T& value) && {
    Attr(name, value);
    return std::move(*this);
  }

  // Adds the node. Returns an empty Operation if that fails or the scope has failed before.
  Operation Add();

 private:
  struct Arg {
    const Input* one;
    const InputList* list;
  };
  struct Resolved;
  Status Resolve(const OpSchema& schema, Resolved* out) const;
  Status Complete(const OpSchema& schema);

  Scope scope_;
  const char* op_;
  std::vector<Arg> args_;
  AttrList attrs_;
  Node* node_ = nullptr;
};

// Splits the outputs of a node by the outputs of its schema: One() returns a single tensor, List(i) the tensors of list
// output i.
class OutputSplitter {
 public:
  explicit OutputSplitter(const Operation& op) : op_(op) {}
  Output One() { return op_.output(next_++); }
  std::vector<Output> List(int arg);

 private:
  const Operation& op_;
  int next_ = 0;
};

// An argument of AddOp: an input, or InputList{...} for a list argument.
class Operand {
 public:
  template <typename T, std::enable_if_t<std::is_convertible_v<const T&, Input>, int> = 0>
  Operand(const T& input) : one_(input) {}  // NOLINT
  Operand(std::initializer_list<Literal> rows) : one_(rows) {}
  Operand(InputList list) : list_(std::move(list)), is_list_(true) {}  // NOLINT

 private:
  friend Operation AddOp(const Scope&, const char*, const std::vector<Operand>&, AttrList);
  Input one_;
  InputList list_;
  bool is_list_ = false;
};

// Adds any op by name: AddOp(scope, "MatMul", {a, b}, {{"transpose_a", true}}).
Operation AddOp(const Scope& scope, const char* op, const std::vector<Operand>& inputs, AttrList attrs = {});
// The same, returning the first output.
inline Output Op(const Scope& scope, const char* op, const std::vector<Operand>& inputs, AttrList attrs = {}) {
  return AddOp(scope, op, inputs, std::move(attrs)).output(0);
}

}  // namespace millrace
