#include "python/native/c_api.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "millrace/base/file.h"
#include "millrace/base/version.h"
#include "millrace/cluster/server.h"
#include "millrace/io/bundle.h"
#include "millrace/io/event_writer.h"
#include "millrace/io/record.h"

struct millrace_server {
  std::unique_ptr<millrace::Server> server;
};
struct millrace_checkpoint_reader {
  std::unique_ptr<millrace::BundleReader> reader;
};
struct millrace_checkpoint_writer {
  std::unique_ptr<millrace::BundleWriter> writer;
};
struct millrace_event_reader {
  std::unique_ptr<millrace::RecordReader> reader;
  std::string event;
};
struct millrace_event_writer {
  std::unique_ptr<millrace::EventWriter> writer;
};

namespace millrace {
namespace {

int Answer(const Status& status, char** error) {
  if (status.ok()) return 0;
  *error = strdup(std::string(status.message()).c_str());
  return static_cast<int>(status.code());
}

// No exception leaves the library: there is nobody behind it who could catch one.
template <typename Body>
int Guarded(char** error, Body body) {
  *error = nullptr;
  try {
    return Answer(body(), error);
  } catch (const std::bad_alloc&) {
    return Answer(ResourceExhausted("there is not enough memory"), error);
  }
}

template <typename Object, typename Held>
Status Give(StatusOr<Held> held, Object** object) {
  if (!held.ok()) return held.status();
  *object = new Object{std::move(*held)};
  return absl::OkStatus();
}

StatusOr<Shape> ShapeOf(int rank, const int64_t* dims) {
  return Shape::Make(absl::MakeConstSpan(dims, static_cast<size_t>(rank)));
}

}  // namespace
}  // namespace millrace

using millrace::Guarded, millrace::Status, millrace::StatusOr;

void millrace_free(void* memory) { std::free(memory); }

const char* millrace_version() { return millrace::Version(); }

int millrace_server_start(const char* cluster, const char* job, int task, const void* config, size_t config_size,
                          int insecure, millrace_server** server, char** error) {
  return Guarded(error, [&]() -> Status {
    MR_ASSIGN_OR_RETURN(const millrace::ClusterSpec spec, millrace::ClusterSpec::Parse(cluster));
    millrace::ServerOptions options{.insecure = insecure != 0};
    if (!options.default_config.ParseFromArray(config, static_cast<int>(config_size)))
      return millrace::InvalidArgument("the config is not a serialized ConfigProto");
    return millrace::Give(millrace::Server::Start(spec, job, task, options), server);
  });
}

const char* millrace_server_target(const millrace_server* server) { return server->server->target().c_str(); }

int millrace_server_stop(millrace_server* server, double seconds, char** error) {
  return Guarded(error, [&] { return server->server->StopWithin(absl::Seconds(seconds)); });
}

void millrace_server_delete(millrace_server* server) { delete server; }

int millrace_checkpoint_open(const char* prefix, millrace_checkpoint_reader** reader, char** error) {
  return Guarded(error, [&] {
    return millrace::Give(millrace::BundleReader::Open(millrace::FileSystem::Posix(), prefix), reader);
  });
}

int millrace_checkpoint_list(millrace_checkpoint_reader* reader, millrace_tensor_visitor visit, void* context,
                             char** error) {
  return Guarded(error, [&] {
    return reader->reader->ForEach([&](absl::string_view name, const millrace::pb::BundleEntryProto& entry) {
      std::vector<int64_t> dims;
      for (const auto& dim : entry.shape().dim()) dims.push_back(dim.size());
      visit(context, std::string(name).c_str(), entry.dtype(), static_cast<int>(dims.size()), dims.data());
      return absl::OkStatus();
    });
  });
}

int millrace_checkpoint_read(millrace_checkpoint_reader* reader, const char* name, void* to, size_t size,
                             char** error) {
  return Guarded(error, [&]() -> Status {
    MR_ASSIGN_OR_RETURN(const millrace::Tensor tensor, reader->reader->Read(name));
    if (!millrace::IsPlain(tensor.dtype()) || tensor.TotalBytes() != size)
      return millrace::InvalidArgument(name, " has ", tensor.TotalBytes(), " bytes, not ", size);
    std::memcpy(to, tensor.raw_data(), size);
    return absl::OkStatus();
  });
}

int millrace_checkpoint_read_strings(millrace_checkpoint_reader* reader, const char* name, millrace_bytes_visitor visit,
                                     void* context, char** error) {
  return Guarded(error, [&]() -> Status {
    MR_ASSIGN_OR_RETURN(const millrace::Tensor tensor, reader->reader->Read(name));
    if (tensor.dtype() != millrace::DType::kString) return millrace::InvalidArgument(name, " has no strings");
    for (int64_t i = 0; i < tensor.num_elements(); ++i) {
      const std::string& text = tensor.data<std::string>()[i];
      visit(context, text.data(), text.size());
    }
    return absl::OkStatus();
  });
}

void millrace_checkpoint_reader_delete(millrace_checkpoint_reader* reader) { delete reader; }

int millrace_checkpoint_create(const char* prefix, millrace_checkpoint_writer** writer, char** error) {
  return Guarded(error, [&] {
    return millrace::Give(millrace::BundleWriter::Create(millrace::FileSystem::Posix(), prefix), writer);
  });
}

int millrace_checkpoint_add(millrace_checkpoint_writer* writer, const char* name, int dtype, int rank,
                            const int64_t* dims, const void* data, size_t size, char** error) {
  return Guarded(error, [&]() -> Status {
    MR_ASSIGN_OR_RETURN(const millrace::Shape shape, millrace::ShapeOf(rank, dims));
    const auto type = static_cast<millrace::DType>(dtype);
    if (!millrace::IsPlain(type) || static_cast<size_t>(shape.num_elements()) * millrace::SizeOf(type) != size)
      return millrace::InvalidArgument(name, ": ", size, " bytes are not those of its type and shape");
    return writer->writer->AddPieces(name, nullptr, type, shape,
                                     [&] { return absl::string_view(static_cast<const char*>(data), size); });
  });
}

int millrace_checkpoint_add_strings(millrace_checkpoint_writer* writer, const char* name, int rank, const int64_t* dims,
                                    const char* const* strings, const size_t* sizes, char** error) {
  return Guarded(error, [&]() -> Status {
    MR_ASSIGN_OR_RETURN(const millrace::Shape shape, millrace::ShapeOf(rank, dims));
    MR_ASSIGN_OR_RETURN(millrace::Tensor tensor, millrace::Tensor::Make(millrace::DType::kString, shape));
    for (int64_t i = 0; i < tensor.num_elements(); ++i) tensor.data<std::string>()[i].assign(strings[i], sizes[i]);
    return writer->writer->Add(name, tensor);
  });
}

int millrace_checkpoint_finish(millrace_checkpoint_writer* writer, char** error) {
  return Guarded(error, [&] { return writer->writer->Finish(); });
}

void millrace_checkpoint_writer_delete(millrace_checkpoint_writer* writer) { delete writer; }

int millrace_events_open(const char* path, millrace_event_reader** reader, char** error) {
  return Guarded(error, [&] {
    auto records = millrace::RecordReader::Open(millrace::FileSystem::Posix(), path);
    if (records.ok()) *reader = new millrace_event_reader{std::move(*records), ""};
    return records.status();
  });
}

int millrace_events_next(millrace_event_reader* reader, int* more, const char** event, size_t* size, char** error) {
  return Guarded(error, [&]() -> Status {
    MR_ASSIGN_OR_RETURN(*more, reader->reader->Read(&reader->event));
    *event = reader->event.data();
    *size = reader->event.size();
    return absl::OkStatus();
  });
}

void millrace_event_reader_delete(millrace_event_reader* reader) { delete reader; }

int millrace_events_create(const char* directory, const char* suffix, millrace_event_writer** writer, char** error) {
  return Guarded(error,
                 [&] { return millrace::Give(millrace::EventWriter::Create(directory, {.suffix = suffix}), writer); });
}

const char* millrace_events_path(const millrace_event_writer* writer) { return writer->writer->path().c_str(); }

int millrace_events_add(millrace_event_writer* writer, const void* summary, size_t size, int64_t step, char** error) {
  return Guarded(error, [&] {
    return writer->writer->WriteSummary(absl::string_view(static_cast<const char*>(summary), size), step);
  });
}

int millrace_events_flush(millrace_event_writer* writer, char** error) {
  return Guarded(error, [&] { return writer->writer->Flush(); });
}

int millrace_events_close(millrace_event_writer* writer, char** error) {
  return Guarded(error, [&] { return writer->writer->Close(); });
}

void millrace_event_writer_delete(millrace_event_writer* writer) { delete writer; }
