// Properties that hold for every op, tested on the nodes of golden graphs: each node is extracted with its input
// tensors and run alone, with these inputs and with unexpected ones.
#include <unistd.h>
#include <zlib.h>

#include <csignal>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/op_schema.h"
#include "millrace/session/session.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/memory_limit.h"
#include "nlohmann/json.hpp"
#include "tests/golden/case.h"
#include "tests/golden/run_case.h"

namespace millrace {
namespace {

// One node of a golden graph with its inputs.
struct Sample {
  std::string where;
  pb::NodeDef node;
  std::vector<Tensor> inputs;
};

// Prints the current node if the program crashes.
char g_where[300];
void OnCrash(int signal) {
  (void)!::write(2, "\ncrashed in ", 12);
  (void)!::write(2, g_where, std::strlen(g_where));
  (void)!::write(2, "\n", 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}
void SetWhere(const std::string& where) { std::snprintf(g_where, sizeof(g_where), "%s", where.c_str()); }

// Nodes that can be run alone: without state, references and frames.
bool StandsAlone(const Node& node) {
  const OpSchema* schema = &node.op();
  if (schema->is_stateful || schema->control_kind != ControlKind::kNone) return false;
  if (node.is_type("Placeholder") || node.is_type("Const") || node.num_outputs() == 0) return false;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const DType type = node.input_type(i);
    if (IsRef(type) || type == DType::kResource || type == DType::kVariant) return false;
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (IsRef(node.output_type(i)) || node.output_type(i) == DType::kResource) return false;
  }
  return true;
}

void TakeSamples(const golden::CaseFolder& folder, const golden::Case& c,
                 std::map<std::string, std::vector<Sample>>* samples) {
  const StatusOr<pb::GraphDef> def = folder.ReadGraph(c);
  if (!def.ok() || c.steps != 1 || c.error_step != 0 || !golden::MissingOps(*def).empty() || def->node_size() > 60)
    return;
  Graph graph;
  if (!ImportGraphDef(*def, &graph).ok()) return;
  std::vector<const Node*> nodes;
  std::vector<std::string> fetches;
  std::set<std::string> taken;
  for (const Node* node : graph.nodes()) {
    if (node->is_type("Enter") || node->is_type("Switch")) return;
    if ((*samples)[node->op().name].size() >= 2 || !StandsAlone(*node) || !taken.insert(node->op().name).second)
      continue;
    nodes.push_back(node);
    for (int i = 0; i < node->num_inputs(); ++i) fetches.push_back(node->input(i).name());
  }
  if (fetches.empty()) return;
  const StatusOr<pb::RunStepRequest> request = folder.ReadRequest(c, 1);
  if (!request.ok()) return;
  const StatusOr<std::vector<Feed>> feeds = golden::FeedsOf(*request);
  auto session = Session::Create({.intra_op_threads = 1, .inter_op_threads = 1});
  if (!feeds.ok() || !session.ok() || !(*session)->Extend(*def).ok()) return;
  // A tensor may not be both fed and fetched.
  std::map<std::string, Tensor> values(feeds->begin(), feeds->end());
  std::vector<std::string> wanted;
  for (const std::string& name : fetches) {
    if (values.count(name) == 0) wanted.push_back(name);
  }
  std::vector<Tensor> results;
  if (!wanted.empty() && !golden::RunBounded(**session, *feeds, wanted, {}, &results).ok()) return;
  for (size_t i = 0; i < wanted.size(); ++i) values[wanted[i]] = results[i];
  for (const Node* node : nodes) {
    Sample sample;
    sample.where = node->op().name + " of " + c.name;
    for (const pb::NodeDef& n : def->node()) {
      if (n.name() == node->name()) sample.node = n;
    }
    for (int i = 0; i < node->num_inputs(); ++i) sample.inputs.push_back(values[node->input(i).name()]);
    (*samples)[node->op().name].push_back(std::move(sample));
  }
}

const std::vector<Sample>& Samples() {
  static const auto* const all = [] {
    for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) std::signal(signal, OnCrash);
    SetMaxAllocation(64 << 20);
    auto* list = new std::vector<Sample>;
    std::map<std::string, std::vector<Sample>> by_op;
    for (const char* archive : {"/golden/cases.tar.xz", "/relatives/cases.tar.xz"}) {
      const auto folder = golden::CaseFolder::Open(std::string(MILLRACE_TESTDATA) + archive);
      if (!folder.ok()) {
        ADD_FAILURE() << folder.status();
        continue;
      }
      for (const golden::Case& c : (*folder)->cases()) {
        SetWhere(c.name);
        TakeSamples(**folder, c, &by_op);
      }
    }
    for (auto& [op, samples] : by_op) list->insert(list->end(), samples.begin(), samples.end());
    return list;
  }();
  return *all;
}

struct Ran {
  Status status;
  std::vector<Tensor> outputs;
  std::vector<PartialShape> inferred;
};

// The node alone, fed `inputs`; with `known_shapes` inference sees their shapes.
Ran RunAlone(const Sample& sample, const std::vector<Tensor>& inputs, bool known_shapes, int threads) {
  pb::GraphDef def;
  std::vector<Feed> feeds;
  pb::NodeDef node = sample.node;
  node.set_name("node");
  node.clear_input();
  node.clear_device();
  node.mutable_attr()->erase("_class");
  node.mutable_attr()->erase("_output_shapes");
  for (size_t i = 0; i < inputs.size(); ++i) {
    pb::NodeDef* fed = def.add_node();
    fed->set_name(absl::StrCat("in", i));
    fed->set_op("Placeholder");
    (*fed->mutable_attr())["dtype"].set_type(
        static_cast<std::decay_t<decltype(pb::AttrValue().type())>>(inputs[i].dtype()));
    pb::AttrValue shape;
    if (known_shapes) {
      inputs[i].shape().ToProto(shape.mutable_shape());
    } else {
      shape.mutable_shape()->set_unknown_rank(true);
    }
    (*fed->mutable_attr())["shape"] = shape;
    node.add_input(fed->name());
    feeds.emplace_back(absl::StrCat("in", i, ":0"), inputs[i]);
  }
  *def.add_node() = node;
  Ran ran;
  Graph graph;
  ran.status = ImportGraphDef(def, &graph);
  if (!ran.status.ok()) return ran;
  ran.status = InferShapes(&graph, /*lenient=*/false);
  if (!ran.status.ok()) return ran;
  std::vector<std::string> fetches;
  const Node* made = graph.FindNode("node");
  for (int i = 0; i < made->num_outputs(); ++i) {
    fetches.push_back(absl::StrCat("node:", i));
    ran.inferred.push_back(Endpoint{const_cast<Node*>(made), i}.shape());
  }
  auto session = Session::Create({.intra_op_threads = threads, .inter_op_threads = 1});
  ran.status = session.status();
  if (ran.status.ok()) ran.status = (*session)->Extend(std::move(def));
  if (ran.status.ok()) ran.status = golden::RunBounded(**session, feeds, fetches, {}, &ran.outputs);
  return ran;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.dtype() == DType::kString) {
    return std::equal(a.flat<std::string>().begin(), a.flat<std::string>().end(), b.flat<std::string>().begin());
  }
  return !IsPlain(a.dtype()) || std::memcmp(a.raw_data(), b.raw_data(), a.TotalBytes()) == 0;
}

// As many elements as fit, with the type of `like` and values around its own.
Tensor Reshaped(const Tensor& like, const Shape& shape) {
  Tensor t(like.dtype(), shape);
  DispatchMove(like.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < t.num_elements(); ++i)
      t.raw<T>()[i] = like.num_elements() > 0 ? like.raw<T>()[i % like.num_elements()] : T();
  });
  return t;
}

TEST(RegistryProperty, ManyOpsHaveSamples) { EXPECT_GT(Samples().size(), 300); }

TEST(RegistryProperty, ResultsHaveTheInferredShapeAndTheSameBitsForAnyNumberOfThreads) {
  for (const Sample& sample : Samples()) {
    SetWhere(sample.where);
    SCOPED_TRACE(sample.where);
    const Ran first = RunAlone(sample, sample.inputs, true, 1);
    if (!first.status.ok()) continue;  // an attr that wants a constant beside it
    for (size_t i = 0; i < first.outputs.size(); ++i) {
      EXPECT_TRUE(first.inferred[i].IsCompatibleWith(first.outputs[i].shape()))
          << "output " << i << ": inferred " << first.inferred[i].ToString() << ", is "
          << first.outputs[i].shape().ToString();
    }
    for (int threads : {2, 8}) {
      const Ran again = RunAlone(sample, sample.inputs, false, threads);
      ASSERT_TRUE(again.status.ok()) << again.status;
      for (size_t i = 0; i < first.outputs.size(); ++i) {
        EXPECT_TRUE(SameBits(first.outputs[i], again.outputs[i]))
            << "output " << i << " with " << threads << " threads";
      }
    }
  }
}

TEST(RegistryProperty, EmptyScalarAndDeepInputsGiveAValueOrAnError) {
  for (const Sample& sample : Samples()) {
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      Shape empty = sample.inputs[i].shape();
      if (empty.rank() > 0) empty.set_dim(0, 0);
      for (const Shape& shape : {Shape({0}), Shape(), empty, Shape({1, 2, 1, 2, 1, 1, 2, 1}), Shape({3})}) {
        SetWhere(absl::StrCat(sample.where, ", input ", i, " of shape ", shape.ToString()));
        std::vector<Tensor> inputs = sample.inputs;
        inputs[i] = Reshaped(inputs[i], shape);
        (void)RunAlone(sample, inputs, false, 1);
        std::vector<Tensor> all;
        for (const Tensor& input : sample.inputs) all.push_back(Reshaped(input, shape));
        (void)RunAlone(sample, all, false, 1);
      }
    }
  }
}

// "OP ATTR TYPE" for each type that one of TensorFlow's CPU kernels takes.
std::set<std::string> TypesOfTensorFlow() {
  std::set<std::string> types;
  gzFile file = gzopen(MILLRACE_TESTDATA "/ops.json.gz", "rb");
  std::string text;
  char block[1 << 16];
  int n = 0;
  while (file != nullptr && (n = gzread(file, block, sizeof(block))) > 0) text.append(block, n);
  if (file != nullptr) gzclose(file);
  for (const auto& op : nlohmann::json::parse(text)) {
    if (!op.contains("cpu_types")) continue;
    for (const auto& [attr, names] : op.at("cpu_types").items()) {
      for (const auto& name : names) {
        const StatusOr<DType> type = ParseDType(name.get<std::string>());
        if (type.ok()) types.insert(absl::StrCat(op.at("name").get<std::string>(), " ", attr, " ", DTypeName(*type)));
      }
    }
  }
  return types;
}

bool NamesAType(absl::string_view message) {
  for (int i = 1; i <= static_cast<int>(DType::kUInt64); ++i) {
    if (absl::StrContains(message, DTypeName(static_cast<DType>(i)))) return true;
  }
  return false;
}

TEST(RegistryProperty, ATypeWithoutAKernelIsAnErrorThatNamesOpAndType) {
  const std::set<std::string> theirs = TypesOfTensorFlow();
  std::set<std::string> lacking;
  for (const Sample& sample : Samples()) {
    const OpSchema* schema = OpRegistry::Global().FindOrNull(sample.node.op());
    for (const OpAttr& attr : schema->attrs) {
      if (attr.type != "type" || sample.node.attr().count(attr.name) == 0) continue;
      const DType old = static_cast<DType>(sample.node.attr().at(attr.name).type());
      for (DType type : attr.allowed_types) {
        if (type == old || type == DType::kResource || type == DType::kVariant) continue;
        SetWhere(absl::StrCat(sample.where, ", ", attr.name, " = ", DTypeName(type)));
        SCOPED_TRACE(g_where);
        Sample changed = sample;
        (*changed.node.mutable_attr())[attr.name].set_type(
            static_cast<std::decay_t<decltype(pb::AttrValue().type())>>(type));
        // Inputs of that attr change with it; the inputs of a schema without lists are its arguments.
        if (schema->inputs.size() != sample.inputs.size()) continue;
        for (size_t i = 0; i < changed.inputs.size(); ++i) {
          if (schema->inputs[i].type_attr != attr.name) continue;
          Tensor zeros(type, changed.inputs[i].shape());
          if (IsPlain(type)) std::memset(zeros.raw_data(), 0, zeros.TotalBytes());
          changed.inputs[i] = std::move(zeros);
        }
        const Ran ran = RunAlone(changed, changed.inputs, false, 1);
        if (ran.status.code() != absl::StatusCode::kUnimplemented) continue;
        EXPECT_TRUE(absl::StrContains(ran.status.message(), sample.node.op())) << ran.status;
        // If types depend on each other (a complex number and its parts), the other one may be the unsupported one.
        EXPECT_TRUE(NamesAType(ran.status.message())) << ran.status;
        const std::string what = absl::StrCat(schema->name, " ", attr.name, " ", DTypeName(type));
        const bool is_the_one = absl::StrContains(ran.status.message(), absl::StrCat("type ", DTypeName(type), " ")) &&
                                std::any_of(schema->inputs.begin(), schema->inputs.end(),
                                            [&](const OpArg& input) { return input.type_attr == attr.name; });
        if (is_the_one && theirs.count(what) > 0) lacking.insert(what);
      }
    }
  }
  for (const std::string& what : lacking) ADD_FAILURE() << "TensorFlow's CPU kernels take what ours do not: " << what;
}

}  // namespace
}  // namespace millrace
