// The functions of a graph.
#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/graph.h"

namespace millrace {

// Shared between clones, possibly on several threads; only its index changes while it is shared.
struct Graph::Library {
  pb::FunctionDefLibrary defs;

  Mutex mu;
  bool indexed ABSL_GUARDED_BY(mu) = false;
  absl::flat_hash_map<absl::string_view, const pb::FunctionDef*> functions ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<absl::string_view, absl::string_view> gradients ABSL_GUARDED_BY(mu);

  void Index() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (indexed) return;
    functions.clear();
    gradients.clear();
    for (const pb::FunctionDef& f : defs.function()) functions.emplace(f.signature().name(), &f);
    for (const pb::GradientDef& g : defs.gradient()) gradients.emplace(g.function_name(), g.gradient_func());
    indexed = true;
  }
};

Graph::Graph() : library_(std::make_shared<Library>()) {}
Graph::~Graph() = default;

const pb::FunctionDefLibrary& Graph::library() const { return library_->defs; }

pb::FunctionDefLibrary* Graph::mutable_library() {
  if (library_.use_count() != 1) {
    auto copy = std::make_shared<Library>();
    copy->defs = library_->defs;
    library_ = std::move(copy);
  }
  MutexLock lock(&library_->mu);
  library_->indexed = false;
  return &library_->defs;
}

const pb::FunctionDef* Graph::FindFunction(absl::string_view name) const {
  MutexLock lock(&library_->mu);
  library_->Index();
  const auto it = library_->functions.find(name);
  return it == library_->functions.end() ? nullptr : it->second;
}

std::string Graph::FindGradientFunction(absl::string_view name) const {
  MutexLock lock(&library_->mu);
  library_->Index();
  const auto it = library_->gradients.find(name);
  return it == library_->gradients.end() ? std::string() : std::string(it->second);
}

}  // namespace millrace
