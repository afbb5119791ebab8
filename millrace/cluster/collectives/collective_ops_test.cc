// The collective ops of a session, on the devices of one task.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {
}  // namespace
}  // namespace millrace
