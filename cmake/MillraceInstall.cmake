# `cmake --install` puts the library, its headers (generated ones too), the `millrace` command and a package file where
# find_package(Millrace) looks; tests/install proves it.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Millrace)
target_include_directories(millrace PUBLIC $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS millrace EXPORT MillraceTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The command finds the library beside it, wherever the prefix is moved to.
file(RELATIVE_PATH lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(millrace_command PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
install(TARGETS millrace_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(root ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  install(DIRECTORY ${root}/millrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h" PATTERN "CMakeFiles" EXCLUDE PATTERN "*_testing.h" EXCLUDE)
endforeach()
install(EXPORT MillraceTargets NAMESPACE Millrace:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/MillraceConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/MillraceConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/MillraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/MillraceConfig.cmake ${PROJECT_BINARY_DIR}/MillraceConfigVersion.cmake
        DESTINATION ${package_dir})
