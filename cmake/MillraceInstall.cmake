# `cmake --install` puts the library, its public headers, the `millrace` command and a package file where
# find_package(Millrace) looks; tests/install proves it.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Millrace)
target_include_directories(millrace_core PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# The second library finds the first beside it.
set_target_properties(millrace_strategies PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS millrace millrace_core millrace_strategies EXPORT MillraceTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The command finds its commands and the library beside it, wherever the prefix is moved to.
file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(millrace_command PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
install(TARGETS millrace_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET millrace_commands)
  set_target_properties(millrace_commands PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS millrace_commands LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
# The Python package that `millrace launch --python` loads (launch/python_site.h), if its library was built.
set(python_dir lib/millrace/python)
file(RELATIVE_PATH lib_from_python ${CMAKE_INSTALL_PREFIX}/${python_dir} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(millrace_c PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_python}")
install(TARGETS millrace_c LIBRARY DESTINATION ${python_dir} OPTIONAL)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/millrace DESTINATION ${python_dir} PATTERN __pycache__ EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/millrace RENAME copyright)
# What libmillrace.so opens beside it for GPUs, if it was built; a component of its own, which no package carries.
if(TARGET millrace_cuda)
  install(TARGETS millrace_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cuda OPTIONAL)
endif()
# The public border: millrace/millrace.h, what it includes, and what that includes. Nothing else is installed. An internal
# header that one of these includes is named by tests/install; a forward declaration is mostly the better answer to that than a
# line here.
set(MILLRACE_PUBLIC_HEADERS
    millrace.h
    api/client_session.h api/clipping.h api/const_op.h api/control_flow.h api/convolutions.h api/embedding.h
    api/function.h api/functional.h api/gradients.h api/initializers.h api/input.h api/layers.h api/lookup_table.h
    api/losses.h api/metrics.h api/moving_averages.h api/op_call.h api/operators.h api/optimizer.h api/optimizers.h
    api/output.h api/partitioned_variable.h api/regularizers.h api/replica_device_setter.h api/rnn.h api/rnn_cell.h
    api/rnn_cells.h api/schedules.h api/scope.h api/sequence_loss.h api/sparse_output.h api/streaming_metrics.h
    api/transformer.h api/variable.h
    api/variable_slice.h
    base/cancellation.h base/clock.h base/file.h base/mutex.h base/notice.h base/ref.h base/shard_tree.h base/status.h base/tls_credentials.h base/version.h
    cluster/cluster_spec.h cluster/server.h cluster/task_config.h cluster/watch/cluster_status.h cluster/watch/hang_report.h
    collective/reduction_kind.h
    data/cifar.h data/cifar_batches.h data/dataset.h data/mnist.h data/worker_batches.h
    estimator/canned/canned_estimators.h estimator/canned/head.h estimator/early_stopping.h estimator/estimator.h
    estimator/exporter.h estimator/feature_columns/feature_column.h estimator/feature_columns/input_layer.h
    estimator/feature_columns/parse_examples.h estimator/model_function.h estimator/output_map.h
    estimator/run_config.h estimator/serving.h
    estimator/train_and_evaluate.h
    graph/attr.h graph/callable_spec.h graph/graph.h graph/op_schema.h graph/pass_options.h
    runtime/run_identity.h
    saved_model/builder.h saved_model/import_saved_model.h saved_model/meta_graph.h saved_model/read_saved_model.h saved_model/saved_model.h saved_model/signature.h
    session/chrome_trace.h session/session.h
    strategy/broadcast_variables.h strategy/horovod.h strategy/strategy.h strategy/worker_group.h
    tensor/buffer.h tensor/dtype.h tensor/half.h tensor/resource_handle.h tensor/shape.h tensor/tensor.h tensor/variant.h
    train/checkpoint/checkpoint_manager.h train/checkpoint/checkpoint_reader.h train/checkpoint/checkpoints_iterator.h train/checkpoint/checkpoint_state.h train/checkpoint/saver.h
    train/checkpoint/warm_start.h train/coordinator.h train/file_writer.h train/global_step.h train/hooks/cadence.h
    train/hooks/checkpoint_saver_hook.h train/hooks/hooks.h train/hooks/profiler_hook.h train/hooks/session_run_hook.h
    train/hooks/step_counter_hook.h train/hooks/summary_saver_hook.h train/monitored_session.h train/monitored_training_session.h train/named_wait.h
    train/progress.h train/queue_inputs.h train/queue_runner.h train/scaffold.h train/session_creator.h train/session_manager.h train/summary.h
    train/supervisor.h train/sync/bounded_staleness.h train/sync/sync_replicas_optimizer.h train/timeline/merge_timelines.h
    train/timeline/timeline.h)
# The messages that these show: TensorFlow's graphs, configurations, statistics and events, and the state of a task.
set(MILLRACE_PUBLIC_MESSAGES config event graph meta_graph status step_stats summary tensor timeline)

function(millrace_install_header root header)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${root}/millrace/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace/${folder})
endfunction()
foreach(header ${MILLRACE_PUBLIC_HEADERS})
  millrace_install_header(${PROJECT_SOURCE_DIR} ${header})
endforeach()
foreach(message ${MILLRACE_PUBLIC_MESSAGES})
  millrace_install_header(${PROJECT_BINARY_DIR} proto/${message}.pb.h)
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/millrace/api/ops DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/millrace/api
        FILES_MATCHING PATTERN "*.h")
install(EXPORT MillraceTargets NAMESPACE Millrace:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/MillraceConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/MillraceConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/MillraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/MillraceConfig.cmake ${PROJECT_BINARY_DIR}/MillraceConfigVersion.cmake
        DESTINATION ${package_dir})
