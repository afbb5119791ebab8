// Every op that is not the runtime's own has a builder, in the header of its family.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/graph/op_schema.h"

namespace millrace {
namespace {

std::string ReadHeader(const std::string& family) {
  std::ifstream in(absl::StrCat(MILLRACE_OP_BUILDERS, "/", family, "_ops.h"));
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(OpBuilders, ExistForEveryRegisteredOp) {
  std::map<std::string, std::string> headers;
  int found = 0;
  for (const OpSchema* op : OpRegistry::Global().All()) {
    if (absl::StartsWith(op->name, "_") || op->name == "Const") continue;
    auto [it, is_new] = headers.try_emplace(op->family);
    if (is_new) it->second = ReadHeader(op->family);
    const bool has_builder = absl::StrContains(it->second, absl::StrCat(" ", op->name, "(const Scope& scope"));
    EXPECT_TRUE(has_builder) << op->name << " of the family " << op->family;
    found += has_builder;
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace millrace
