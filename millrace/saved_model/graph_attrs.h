// What lets a graph be read by programs whose ops are older or newer than those of its producer.
#pragma once

#include "millrace/proto/meta_graph.pb.h"

namespace millrace {

namespace pb = ::tensorflow;

// Lists the ops that the graph and its functions use (stripped_op_list), and sets the producer's version if the graph
// has none.
void DescribeOps(pb::MetaGraphDef* meta);

// Removes the attrs that have their op's default value, so that a consumer that does not know them yet can read the
// graph, and notes that it was done.
void StripDefaultAttrs(pb::MetaGraphDef* meta);

// Removes the attrs that Millrace's ops do not have, where they have the defaults of the producer's op list: the graph
// then means the same without them. Others are left for the import to name.
void RemoveNewDefaultAttrs(pb::MetaGraphDef* meta);

}  // namespace millrace
