// Expands Slurm's lists of nodes: a list on each line of stdin, its nodes on one line of stdout.
#include <iostream>
#include <string>

#include "absl/strings/str_join.h"
#include "millrace/launch/place/node_list.h"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto nodes = millrace::launch::ExpandNodeList(line);
    if (!nodes.ok()) {
      std::cerr << nodes.status() << "\n";
      return 1;
    }
    std::cout << absl::StrJoin(*nodes, " ") << "\n";
  }
  return 0;
}
