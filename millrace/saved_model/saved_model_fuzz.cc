// Fuzzes saved_model.pb: every graph is prepared and imported, or refused with an error.
#include <cstddef>
#include <cstdint>

#include "millrace/io/memory_files_testing.h"
#include "millrace/saved_model/meta_graph.h"
#include "millrace/saved_model/read_saved_model.h"
#include "millrace/saved_model/signature.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  MemoryFiles files;
  files.files["model/saved_model.pb"].assign(reinterpret_cast<const char*>(data), size);
  StatusOr<pb::SavedModel> model = ReadSavedModel("model", &files);
  if (!model.ok()) return 0;
  FindMetaGraph(&*model, {kServeTag}).status().IgnoreError();
  for (const pb::MetaGraphDef& meta : model->meta_graphs()) {
    for (const auto& [name, signature] : meta.signature_def()) {
      for (const auto& [input, info] : signature.inputs()) TensorInfoText(info);
    }
    if (const StatusOr<SavedModelSetup> setup = SetupOf(meta, "model", &files); setup.ok()) {
      for (const Feed& asset : setup->assets) MR_CHECK(asset.second.dtype() == DType::kString);
    }
    const Scope root = Scope::NewRoot();
    const StatusOr<ImportedGraph> imported = ImportMetaGraph(root.SubScope("in"), meta);
    if (!imported.ok()) {
      MR_CHECK(root.graph()->num_nodes() == 0);
      continue;
    }
    imported->MakeSaver().status().IgnoreError();
    imported->Ops("train_op").status().IgnoreError();
    if (root.ok()) MR_CHECK(ExportMetaGraph(root, {.strip_default_attrs = true}).ok());
  }
  return 0;
}
