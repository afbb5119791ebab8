// `millrace explain-hang`, which a launcher starts to hear what its tasks wait for (launch/hang_question.h).
#pragma once

#include <string>
#include <vector>

namespace millrace {

// Asks the tasks and writes the answer to stdout: a line with the cause, then a line for each wait. Returns the exit
// code. `arguments` are the limit in seconds, then the tasks, "worker/0=host:port"; the credentials, if any, come from
// stdin. Tasks that do not run Millrace, or do not serve yet, are skipped.
int ExplainHangOf(const std::vector<std::string>& arguments);

}  // namespace millrace
