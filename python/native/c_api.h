// The part of the library that Python programs call, as C functions: servers of a process, checkpoints and event files.
//
// A function that can fail returns a status code of TensorFlow's numbering (0: OK) and stores a message that the caller
// frees with millrace_free. Strings are UTF-8 and end with a zero byte unless a size stands beside them. Objects belong
// to the caller, which ends them with their `_delete` function.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MILLRACE_EXPORT __attribute__((visibility("default")))

extern "C" {

typedef struct millrace_server millrace_server;
typedef struct millrace_checkpoint_reader millrace_checkpoint_reader;
typedef struct millrace_checkpoint_writer millrace_checkpoint_writer;
typedef struct millrace_event_reader millrace_event_reader;
typedef struct millrace_event_writer millrace_event_writer;

MILLRACE_EXPORT void millrace_free(void* memory);
MILLRACE_EXPORT const char* millrace_version();

// `cluster` is in the format of TensorFlow's flag, "ps|host:port;host:port,worker|host:port"; `config` is a serialized
// ConfigProto, the default of sessions that have none.
MILLRACE_EXPORT int millrace_server_start(const char* cluster, const char* job, int task, const void* config,
                                          size_t config_size, int insecure, millrace_server** server, char** error);
// Valid until the server is deleted.
MILLRACE_EXPORT const char* millrace_server_target(const millrace_server* server);
MILLRACE_EXPORT int millrace_server_stop(millrace_server* server, double seconds, char** error);
MILLRACE_EXPORT void millrace_server_delete(millrace_server* server);

MILLRACE_EXPORT int millrace_checkpoint_open(const char* prefix, millrace_checkpoint_reader** reader, char** error);
// Calls `visit` for each tensor, in the order of the names.
typedef void (*millrace_tensor_visitor)(void* context, const char* name, int dtype, int rank, const int64_t* dims);
MILLRACE_EXPORT int millrace_checkpoint_list(millrace_checkpoint_reader* reader, millrace_tensor_visitor visit,
                                             void* context, char** error);
// Reads a tensor of numbers into `to`, which has exactly its bytes.
MILLRACE_EXPORT int millrace_checkpoint_read(millrace_checkpoint_reader* reader, const char* name, void* to,
                                             size_t size, char** error);
// Calls `visit` for each string of a tensor, row by row.
typedef void (*millrace_bytes_visitor)(void* context, const char* bytes, size_t size);
MILLRACE_EXPORT int millrace_checkpoint_read_strings(millrace_checkpoint_reader* reader, const char* name,
                                                     millrace_bytes_visitor visit, void* context, char** error);
MILLRACE_EXPORT void millrace_checkpoint_reader_delete(millrace_checkpoint_reader* reader);

MILLRACE_EXPORT int millrace_checkpoint_create(const char* prefix, millrace_checkpoint_writer** writer, char** error);
MILLRACE_EXPORT int millrace_checkpoint_add(millrace_checkpoint_writer* writer, const char* name, int dtype, int rank,
                                            const int64_t* dims, const void* data, size_t size, char** error);
MILLRACE_EXPORT int millrace_checkpoint_add_strings(millrace_checkpoint_writer* writer, const char* name, int rank,
                                                    const int64_t* dims, const char* const* strings,
                                                    const size_t* sizes, char** error);
// Publishes the checkpoint; without it nothing is left of it.
MILLRACE_EXPORT int millrace_checkpoint_finish(millrace_checkpoint_writer* writer, char** error);
MILLRACE_EXPORT void millrace_checkpoint_writer_delete(millrace_checkpoint_writer* writer);

MILLRACE_EXPORT int millrace_events_open(const char* path, millrace_event_reader** reader, char** error);
// Reads the next record. `*more` is 0 at the end of the file; the event is valid until the next call.
MILLRACE_EXPORT int millrace_events_next(millrace_event_reader* reader, int* more, const char** event, size_t* size,
                                         char** error);
MILLRACE_EXPORT void millrace_event_reader_delete(millrace_event_reader* reader);

MILLRACE_EXPORT int millrace_events_create(const char* directory, const char* suffix, millrace_event_writer** writer,
                                           char** error);
MILLRACE_EXPORT const char* millrace_events_path(const millrace_event_writer* writer);
// `summary` is a serialized Summary.
MILLRACE_EXPORT int millrace_events_add(millrace_event_writer* writer, const void* summary, size_t size, int64_t step,
                                        char** error);
MILLRACE_EXPORT int millrace_events_flush(millrace_event_writer* writer, char** error);
MILLRACE_EXPORT int millrace_events_close(millrace_event_writer* writer, char** error);
MILLRACE_EXPORT void millrace_event_writer_delete(millrace_event_writer* writer);

}  // extern "C"
