// MetaGraphs: graphs with their collections (variables, training ops, summaries) and savers, as a file.
//
//   Scope root = Scope::NewRoot();
//   auto imported = ImportMetaGraph(root, ReadMetaGraph("train/model.ckpt-812.meta").value()).value();
//   ClientSession session = ClientSession::Create(root).value();
//   imported.MakeSaver().value()->Restore(&session, "train/model.ckpt-812");
//   session.Run(imported.Ops("train_op").value().front());
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "millrace/api/scope.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/proto/meta_graph.pb.h"
#include "millrace/train/checkpoint/saver.h"

namespace millrace {

namespace pb = ::tensorflow;

struct ExportMetaGraphOptions {
  // Its nodes are named in the MetaGraph, so that importers can restore and save; null: none.
  const Saver* saver = nullptr;
  // Ops and tensors by name, beside the graph's own collections: {"train_op", {"train"}}.
  std::map<std::string, std::vector<std::string>> collections = {};
  // Removes devices, so that the graph runs anywhere.
  bool clear_devices = false;
  // Removes attrs that have their default values, so that older consumers can read the graph.
  bool strip_default_attrs = false;
};

// The graph with its collections, in the form that TensorFlow's import_meta_graph reads. Returns the scope's error if
// building the graph failed.
StatusOr<pb::MetaGraphDef> ExportMetaGraph(const Scope& scope, const ExportMetaGraphOptions& options = {});

// A file with a MetaGraphDef. DATA_LOSS if it is not one. Write replaces the file atomically.
StatusOr<pb::MetaGraphDef> ReadMetaGraph(const std::string& path, FileSystem* files = FileSystem::Posix());
Status WriteMetaGraph(const pb::MetaGraphDef& meta, const std::string& path, FileSystem* files = FileSystem::Posix());

struct ImportMetaGraphOptions {
  // Removes devices, so that the graph runs anywhere.
  bool clear_devices = false;
};

// What ImportMetaGraph has added. Names are those of the MetaGraph, without the scope's prefix.
class ImportedGraph {
 public:
  // NOT_FOUND names what is missing.
  StatusOr<Output> Tensor(const std::string& name) const;  // "x:0"
  StatusOr<Operation> Op(const std::string& name) const;   // "train"
  // The ops of a collection, each once; empty if there is no such collection.
  StatusOr<std::vector<Operation>> Ops(const std::string& collection) const;
  // The tensors of a collection.
  StatusOr<std::vector<Output>> Tensors(const std::string& collection) const;

  // A saver with the nodes of the imported one. FAILED_PRECONDITION if the MetaGraph has none; `new Saver(scope)` then
  // makes one for the variables of the scope.
  StatusOr<std::unique_ptr<Saver>> MakeSaver(SaverOptions options = {}) const;

  // Everything but the nodes of the graph.
  const pb::MetaGraphDef& meta_graph() const { return meta_; }

 private:
  friend StatusOr<ImportedGraph> ImportMetaGraph(const Scope& scope, pb::MetaGraphDef meta,
                                                 const ImportMetaGraphOptions& options);
  ImportedGraph(const Scope& scope, pb::MetaGraphDef meta) : scope_(scope), meta_(std::move(meta)) {}
  std::string InScope(const std::string& name) const;

  Scope scope_;
  pb::MetaGraphDef meta_;
};

// Adds the nodes of the MetaGraph to the scope's graph, with the scope's prefix before their names. Its variables
// become variables of the graph (GlobalVariables, TrainableVariables, LocalVariables), and so do the global step, if
// the graph has none, update ops, summaries and regularization losses; values come from a checkpoint, or from their
// initializers. On an error nothing is added: those of ImportGraphDef, ALREADY_EXISTS for a name that the graph has
// (use a sub-scope), DATA_LOSS for a collection that cannot be parsed, INVALID_ARGUMENT for one that names no node.
StatusOr<ImportedGraph> ImportMetaGraph(const Scope& scope, pb::MetaGraphDef meta,
                                        const ImportMetaGraphOptions& options = {});

}  // namespace millrace
