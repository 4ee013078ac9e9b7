# What `cmake --install` puts where: the program, the public headers, the modules as static libraries and a package.
# LibTorch's part has an export file of its own, so that programs without LibTorch need not find it.
include(CMakePackageConfigHelpers)
set(PLIANT_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/pliant)

if(TARGET pliant_session)
  add_library(pliant_interface INTERFACE)
  add_library(pliant::pliant ALIAS pliant_interface)
  set_target_properties(pliant_interface PROPERTIES EXPORT_NAME pliant)
  target_link_libraries(pliant_interface INTERFACE pliant_session)
  install(TARGETS pliant_interface EXPORT pliantTargets)
endif()

get_property(modules GLOBAL PROPERTY PLIANT_MODULES)
list(REMOVE_ITEM modules pliant_torch)
install(TARGETS ${modules} EXPORT pliantTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT pliantTargets NAMESPACE pliant:: DESTINATION ${PLIANT_PACKAGE_DIR})
if(TARGET pliant_torch)
  install(TARGETS pliant_torch EXPORT pliantTorchTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT pliantTorchTargets NAMESPACE pliant:: DESTINATION ${PLIANT_PACKAGE_DIR})
endif()

if(NOT TARGET pliant_torch)
  set(without_torch PATTERN torch.h EXCLUDE)
endif()
install(DIRECTORY include/pliant DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${without_torch})
if(TARGET pliant)
  install(TARGETS pliant RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/pliantConfig.cmake.in ${PROJECT_BINARY_DIR}/pliantConfig.cmake
  INSTALL_DESTINATION ${PLIANT_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pliantConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pliantConfig.cmake ${PROJECT_BINARY_DIR}/pliantConfigVersion.cmake
  DESTINATION ${PLIANT_PACKAGE_DIR})
