#include "millrace/api/output.h"

namespace millrace {
namespace {
const std::string& EmptyString() {
  static const std::string* const empty = new std::string;
  return *empty;
}
}  // namespace

Operation::Operation(const Output& output) : scope_(output.scope()), node_(output.node()) {}

const std::string& Operation::name() const { return node_ == nullptr ? EmptyString() : node_->name(); }
const std::string& Operation::type() const { return node_ == nullptr ? EmptyString() : node_->type(); }

Output Operation::output(int i) const {
  if (i < 0 || i >= num_outputs()) return Output(scope_, Endpoint{});
  return Output(scope_, Endpoint{node_, i});
}

std::vector<Output> Operation::outputs(int begin, int end) const {
  std::vector<Output> result;
  for (int i = begin; i < std::min(end, num_outputs()); ++i) result.push_back(output(i));
  return result;
}

std::string Output::name() const { return empty() ? std::string() : endpoint_.name(); }
DType Output::dtype() const { return empty() ? DType::kInvalid : BaseType(endpoint_.dtype()); }

}  // namespace millrace
